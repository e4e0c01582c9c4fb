{{/* The program's flags. */}}
{{- define "switchyard.args" -}}
{{- if ne .Values.mode "agent" }}
- --mode={{ .Values.mode }}
{{- end }}
- --config=/etc/switchyard/controller_manager_config.yaml
- --webhook-listen=[::]:9443
- --webhook-service={{ include "switchyard.name" . }}-webhook:{{ include "switchyard.webhookPort" . }}
- --conversion-service={{ include "switchyard.name" . }}-conversion
{{- if .Values.enableCertManager }}
- --external-webhook-certificates
{{- end }}
{{- if eq .Values.controllerManager.jobWebhooks "fail" }}
- --job-webhooks=fail
{{- end }}
- --log={{ .Values.controllerManager.manager.log }}
- --log-format=json
{{- if include "switchyard.metricsPort" . }}
- --metrics-listen=config
{{- end }}
{{- if include "switchyard.visibility" . }}
- --visibility-listen=config
{{- end }}
{{- range include "switchyard.certified" . | fromYamlArray }}
- --{{ . }}-certificates=/etc/switchyard-{{ . }}
{{- end }}
{{- if eq .Values.mode "hub" }}
{{- with .Values.hub.advertise }}
- --advertise={{ . }}
{{- end }}
{{- with .Values.hub.breaker }}
{{- with .clusters }}
- --breaker-clusters={{ . }}
{{- end }}
{{- with .workloads }}
- --breaker-workloads={{ . }}
{{- end }}
{{- with .evictionsPerMinute }}
- --evictions-per-minute={{ . }}
{{- end }}
{{- end }}
{{- else if eq .Values.mode "agent" }}
- --join-directory=/etc/switchyard-join
{{- with .Values.agent.allowNamespaces }}
- --allow-namespaces={{ join "," . }}
{{- end }}
{{- with .Values.agent.allowKinds }}
- --allow-kinds={{ join "," . }}
{{- end }}
{{- with .Values.agent.allowServiceAccounts }}
- --allow-service-accounts={{ join "," . }}
{{- end }}
{{- if not .Values.agent.dryRuns }}
- --dry-runs=false
{{- end }}
{{- end }}
{{- end -}}
