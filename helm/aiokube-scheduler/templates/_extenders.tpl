{{/* What an entry of .Values.extenders means; each definition takes the entry. */}}

{{- define "aiokube-scheduler.extenderDirectory" -}}
{{ include "aiokube-scheduler.configDirectory" . }}/extenders/{{ .name }}
{{- end }}

{{- define "aiokube-scheduler.extenderURL" -}}
{{- if .sidecar }}
{{- printf "http://127.0.0.1:%d%s" (int .sidecar.port) (default "" .sidecar.path) }}
{{- else }}
{{- .url }}
{{- end }}
{{- end }}

{{- define "aiokube-scheduler.extenderTokenFile" -}}
{{ include "aiokube-scheduler.extenderDirectory" . }}/token/{{ default "token" .bearerToken.key }}
{{- end }}

{{/* The entry of extenders[] in KubeSchedulerConfiguration. */}}
{{- define "aiokube-scheduler.extender" -}}
{{- $entry := dict "urlPrefix" (include "aiokube-scheduler.extenderURL" .) }}
{{- with .tls }}
{{- $files := printf "%s/tls" (include "aiokube-scheduler.extenderDirectory" $) }}
{{- $tls := dict }}
{{- with default "ca.crt" .ca }}
{{- $_ := set $tls "caFile" (printf "%s/%s" $files .) }}
{{- end }}
{{- if .clientCertificate }}
{{- $_ := set $tls "certFile" (printf "%s/tls.crt" $files) }}
{{- $_ := set $tls "keyFile" (printf "%s/tls.key" $files) }}
{{- end }}
{{- with .serverName }}
{{- $_ := set $tls "serverName" . }}
{{- end }}
{{- $_ := set $entry "enableHTTPS" true }}
{{- $_ := set $entry "tlsConfig" $tls }}
{{- end }}
{{- toYaml (mergeOverwrite $entry (deepCopy (default dict .config))) }}
{{- end }}

{{/* The sidecar as a restartable init container: it is there before the scheduler starts, and until it has ended. */}}
{{- define "aiokube-scheduler.sidecar" -}}
{{- $root := .root }}
{{- with .extender }}
{{- $security := mergeOverwrite (deepCopy $root.Values.securityContext) (deepCopy (default dict .sidecar.securityContext)) }}
{{- $container := omit .sidecar "port" "path" "securityContext" }}
{{- $own := dict "name" (printf "extender-%s" .name) "restartPolicy" "Always" "securityContext" $security }}
{{- toYaml (merge $own (deepCopy $container)) }}
{{- end }}
{{- end }}

{{- define "aiokube-scheduler.extenderVolumes" -}}
{{- if .tls }}
- name: extender-{{ .name }}-tls
  secret:
    secretName: {{ .tls.secretName }}
{{- end }}
{{- with .bearerToken }}
- name: extender-{{ $.name }}-token
  {{- if .secretName }}
  secret:
    secretName: {{ .secretName }}
  {{- else }}
  projected:
    sources:
    - serviceAccountToken:
        path: token
        audience: {{ .audience | quote }}
        expirationSeconds: {{ default 3600 .expirationSeconds | int }}
  {{- end }}
{{- end }}
{{- end }}

{{- define "aiokube-scheduler.extenderMounts" -}}
{{- $directory := include "aiokube-scheduler.extenderDirectory" . }}
{{- if .tls }}
- name: extender-{{ .name }}-tls
  mountPath: {{ $directory }}/tls
  readOnly: true
{{- end }}
{{- if .bearerToken }}
- name: extender-{{ .name }}-token
  mountPath: {{ $directory }}/token
  readOnly: true
{{- end }}
{{- end }}
