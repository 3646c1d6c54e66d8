{{/* Names, labels and the service account. */}}

{{- define "aiokube-scheduler.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "aiokube-scheduler.fullname" -}}
{{- $name := include "aiokube-scheduler.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- /* Releases may have dots in their names, Services may not. */}}
{{- $release := .Release.Name | replace "." "-" }}
{{- ternary $release (printf "%s-%s" $release $name) (contains $name $release) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* Objects outside the release's namespace carry its name, so that releases of one name do not meet there. */}}
{{- define "aiokube-scheduler.clusterName" -}}
{{- printf "%s:%s" .Release.Namespace (include "aiokube-scheduler.fullname" .) }}
{{- end }}

{{- define "aiokube-scheduler.selectorLabels" -}}
app.kubernetes.io/name: {{ include "aiokube-scheduler.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "aiokube-scheduler.labels" -}}
{{- $own := dict
  "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-")
  "app.kubernetes.io/version" .Chart.AppVersion
  "app.kubernetes.io/component" "scheduler"
  "app.kubernetes.io/managed-by" .Release.Service }}
{{- $selector := include "aiokube-scheduler.selectorLabels" . | fromYaml }}
{{- toYaml (mergeOverwrite (dict) .Values.commonLabels $own $selector) }}
{{- end }}

{{- define "aiokube-scheduler.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "aiokube-scheduler.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- required "serviceAccount.name is needed with serviceAccount.create=false: the namespace's default account must not get a scheduler's rights" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "aiokube-scheduler.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{/* How Prometheus verifies the certificate: serviceMonitor.tlsConfig over what the chart knows. */}}
{{- define "aiokube-scheduler.monitorTLS" -}}
{{- $given := default dict .Values.serviceMonitor.tlsConfig }}
{{- $known := dict }}
{{- if not $given.insecureSkipVerify }}
{{- $_ := set $known "serverName" (printf "%s.%s.svc" (include "aiokube-scheduler.fullname" .) .Release.Namespace) }}
{{- $readable := has .Values.serviceMonitor.namespace (list "" .Release.Namespace) }}
{{- if and .Values.tls.certManager.enabled $readable (not $given.caFile) (not $given.ca) }}
{{- $_ := set $known "ca" (dict "secret" (dict "name" (include "aiokube-scheduler.tlsSecret" .) "key" "ca.crt")) }}
{{- end }}
{{- end }}
{{- toYaml (merge (deepCopy $given) $known) }}
{{- end }}

{{/* Secret with the serving certificate; empty when the scheduler signs its own. */}}
{{- define "aiokube-scheduler.tlsSecret" -}}
{{- if .Values.tls.secretName }}
{{- .Values.tls.secretName }}
{{- else if .Values.tls.certManager.enabled }}
{{- printf "%s-tls" (include "aiokube-scheduler.fullname" .) }}
{{- end }}
{{- end }}
