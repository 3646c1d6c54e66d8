{{/* Parts of the pod. */}}

{{/* .Values.affinity, with the anti-affinity that podAntiAffinity asks for unless it has one of its own. */}}
{{- define "aiokube-scheduler.affinity" -}}
{{- $affinity := deepCopy .Values.affinity }}
{{- if and (ne .Values.podAntiAffinity "none") (not (hasKey $affinity "podAntiAffinity")) }}
{{- $term := dict
  "topologyKey" "kubernetes.io/hostname"
  "labelSelector" (dict "matchLabels" (include "aiokube-scheduler.selectorLabels" . | fromYaml)) }}
{{- if eq .Values.podAntiAffinity "hard" }}
{{- $_ := set $affinity "podAntiAffinity" (dict "requiredDuringSchedulingIgnoredDuringExecution" (list $term)) }}
{{- else }}
{{- $preferred := list (dict "weight" 100 "podAffinityTerm" $term) }}
{{- $_ := set $affinity "podAntiAffinity" (dict "preferredDuringSchedulingIgnoredDuringExecution" $preferred) }}
{{- end }}
{{- end }}
{{- if $affinity }}
{{- toYaml $affinity }}
{{- end }}
{{- end }}

{{/* A probe of the secure port. Arguments: probe (its parameters), path. */}}
{{- define "aiokube-scheduler.probe" -}}
{{- toYaml (mergeOverwrite (dict "httpGet" (dict "path" .path "port" "https" "scheme" "HTTPS")) .probe) }}
{{- end }}
