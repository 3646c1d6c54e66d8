{{/* Combinations of values that the schema cannot refuse. */}}
{{- define "aiokube-scheduler.validate" -}}
{{- if and (gt (int (include "aiokube-scheduler.replicas" .)) 1) (not (include "aiokube-scheduler.elects" .)) }}
{{- fail "replicaCount > 1 needs leader election: two schedulers without it decide about the same pods" }}
{{- end }}
{{- include "aiokube-scheduler.validateBudget" . }}
{{- if and .Values.serviceMonitor.enabled (not .Values.service.enabled) }}
{{- fail "serviceMonitor.enabled needs service.enabled: a ServiceMonitor selects services" }}
{{- end }}
{{- if and .Values.serviceMonitor.enabled (not .Values.securePort) }}
{{- fail "serviceMonitor.enabled needs a securePort: without one there are no metrics" }}
{{- end }}
{{- include "aiokube-scheduler.validateExtenders" . }}
{{- end }}

{{/* A budget that allows no disruption blocks every drain of a node. */}}
{{- define "aiokube-scheduler.validateBudget" -}}
{{- $budget := .Values.podDisruptionBudget }}
{{- if and $budget.enabled (gt (int (include "aiokube-scheduler.replicas" .)) 1) }}
{{- if not (kindIs "invalid" $budget.minAvailable) }}
{{- $least := toString $budget.minAvailable }}
{{- $pods := int (trimSuffix "%" $least) }}
{{- if hasSuffix "%" $least }}
{{- $pods = ceil (divf (mulf $pods .Values.replicaCount) 100) | int }}
{{- end }}
{{- if ge $pods (int (include "aiokube-scheduler.replicas" .)) }}
{{- fail (printf "podDisruptionBudget.minAvailable=%s of %d replicas would block every drain; leave it out (maxUnavailable is 1), or ask for less" $least (int (include "aiokube-scheduler.replicas" .))) }}
{{- end }}
{{- else if eq (int (trimSuffix "%" (toString $budget.maxUnavailable))) 0 }}
{{- fail "podDisruptionBudget.maxUnavailable=0 would block every drain; use 1, or podDisruptionBudget.enabled=false" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "aiokube-scheduler.validateExtenders" -}}
{{- $names := list }}
{{- range .Values.extenders }}
{{- if has .name $names }}
{{- fail (printf "extenders: two are named %s" .name) }}
{{- end }}
{{- $names = append $names .name }}
{{- if and .tls (not (hasPrefix "https://" (include "aiokube-scheduler.extenderURL" .))) }}
{{- fail (printf "extenders: %s has tls, but its url is not https" .name) }}
{{- end }}
{{- if and .url $.Values.networkPolicy.enabled (not $.Values.networkPolicy.extraEgress) }}
{{- fail (printf "networkPolicy would cut off extender %s: allow it in networkPolicy.extraEgress" .name) }}
{{- end }}
{{- end }}
{{- end }}
