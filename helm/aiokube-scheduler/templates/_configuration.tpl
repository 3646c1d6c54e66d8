{{/*
The scheduler's configuration, as the values give it. From the weakest to the strongest:

    schedulerName, leaderElection, clientConnection  <  configFile  <  config        the first document
                                                        configFile  <  aiokubeConfig the second

`extenders` are added to both. Everything else in this chart that depends on the configuration (lease rights, notes,
grace period) reads the outcome, so that it cannot disagree with what the scheduler is told.
*/}}

{{- define "aiokube-scheduler.configDirectory" -}}/etc/aiokube-scheduler{{- end }}

{{/* One document of configFile. Arguments: root, second (whether it is the second that is wanted). */}}
{{- define "aiokube-scheduler.fileDocument" -}}
{{- $found := dict }}
{{- range regexSplit "(?m)^---([ \\t\\r].*)?$" .root.Values.configFile -1 }}
{{- $document := fromYaml . }}
{{- if and (hasKey $document "Error") (not (hasKey $document "kind")) }}
{{- fail (printf "configFile cannot be read: %s" $document.Error) }}
{{- end }}
{{- if and $document (eq $.second (eq (toString $document.kind) "AiokubeSchedulerConfiguration")) }}
{{- if $found }}
{{- fail (printf "configFile has two documents of kind %s" $document.kind) }}
{{- end }}
{{- $found = $document }}
{{- end }}
{{- end }}
{{- toYaml $found }}
{{- end }}

{{/* KubeSchedulerConfiguration. */}}
{{- define "aiokube-scheduler.configuration" -}}
{{- $election := dict
  "leaderElect" .Values.leaderElection.enabled
  "leaseDuration" .Values.leaderElection.leaseDuration
  "renewDeadline" .Values.leaderElection.renewDeadline
  "retryPeriod" .Values.leaderElection.retryPeriod
  "resourceLock" "leases"
  "resourceName" (default (include "aiokube-scheduler.fullname" .) .Values.leaderElection.resourceName)
  "resourceNamespace" (default .Release.Namespace .Values.leaderElection.resourceNamespace) }}
{{- $configuration := dict
  "apiVersion" "kubescheduler.config.k8s.io/v1"
  "kind" "KubeSchedulerConfiguration"
  "leaderElection" $election
  "clientConnection" (deepCopy .Values.clientConnection)
  "profiles" (list (dict "schedulerName" .Values.schedulerName)) }}
{{- $file := include "aiokube-scheduler.fileDocument" (dict "root" . "second" false) | fromYaml }}
{{- $configuration = mergeOverwrite $configuration $file (deepCopy .Values.config) }}
{{- if eq (len (default list $configuration.profiles)) 1 }}
{{- $only := first $configuration.profiles }}
{{- if not (hasKey $only "schedulerName") }}
{{- $_ := set $only "schedulerName" .Values.schedulerName }}
{{- end }}
{{- end }}
{{- $extenders := default list $configuration.extenders }}
{{- range .Values.extenders }}
{{- $extenders = append $extenders (include "aiokube-scheduler.extender" . | fromYaml) }}
{{- end }}
{{- if $extenders }}
{{- $_ := set $configuration "extenders" $extenders }}
{{- end }}
{{- toYaml $configuration }}
{{- end }}

{{/* AiokubeSchedulerConfiguration; empty when there is nothing to say. */}}
{{- define "aiokube-scheduler.extension" -}}
{{- $header := dict "apiVersion" "aiokube-scheduler.io/v1alpha1" "kind" "AiokubeSchedulerConfiguration" }}
{{- $file := include "aiokube-scheduler.fileDocument" (dict "root" . "second" true) | fromYaml }}
{{- $extension := mergeOverwrite (dict) $file (deepCopy .Values.aiokubeConfig) }}
{{- $extenders := default list $extension.extenders }}
{{- range .Values.extenders }}
{{- $options := deepCopy (default dict .options) }}
{{- if .bearerToken }}
{{- $_ := set $options "bearerTokenFile" (include "aiokube-scheduler.extenderTokenFile" .) }}
{{- end }}
{{- if $options }}
{{- $_ := set $options "urlPrefix" (include "aiokube-scheduler.extenderURL" .) }}
{{- $extenders = append $extenders $options }}
{{- end }}
{{- end }}
{{- if $extenders }}
{{- $_ := set $extension "extenders" $extenders }}
{{- end }}
{{- if $extension }}
{{- toYaml (mergeOverwrite $header $extension) }}
{{- end }}
{{- end }}

{{/* The file: both documents. */}}
{{- define "aiokube-scheduler.configText" -}}
{{ include "aiokube-scheduler.configuration" . }}
{{- with include "aiokube-scheduler.extension" . }}
---
{{ . }}
{{- end }}
{{- end }}

{{/* The scheduler names served, with commas between. */}}
{{- define "aiokube-scheduler.schedulerNames" -}}
{{- $configuration := include "aiokube-scheduler.configuration" . | fromYaml }}
{{- $names := list }}
{{- range $configuration.profiles }}
{{- $names = append $names (default "default-scheduler" .schedulerName) }}
{{- end }}
{{- join "," (default (list "default-scheduler") $names) }}
{{- end }}

{{/* A shadow needs no second replica: nothing waits for it. */}}
{{- define "aiokube-scheduler.replicas" -}}
{{- ternary 1 .Values.replicaCount (and (eq .Values.mode "shadow") (gt (int .Values.replicaCount) 1)) }}
{{- end }}

{{/* "true" when the replicas elect a leader. */}}
{{- define "aiokube-scheduler.elects" -}}
{{- $configuration := include "aiokube-scheduler.configuration" . | fromYaml }}
{{- if and (eq .Values.mode "scheduler") (ne (toString $configuration.leaderElection.leaderElect) "false") }}true{{ end }}
{{- end }}
