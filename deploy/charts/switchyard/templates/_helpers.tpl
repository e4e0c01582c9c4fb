{{/* The name of the Deployment, its Services and its account: those of deploy/rbac, which know no other. */}}
{{- define "switchyard.name" -}}
{{- if eq .Values.mode "single" }}switchyard{{ else }}switchyard-{{ .Values.mode }}{{ end -}}
{{- end -}}

{{- define "switchyard.selectorLabels" -}}
app.kubernetes.io/name: {{ include "switchyard.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "switchyard.labels" -}}
{{ include "switchyard.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{/* The Secret with what an agent joins by. */}}
{{- define "switchyard.joinSecret" -}}
{{- .Values.agent.existingSecret | default "switchyard-agent-join" -}}
{{- end -}}

{{/* Not empty where the visibility API is served. */}}
{{- define "switchyard.visibility" -}}
{{- if and .Values.visibility.enabled (ne .Values.mode "agent") -}}
{{- $gates := (include "switchyard.config" . | fromYaml).featureGates | default dict -}}
{{- if not (dig "VisibilityOnDemand" true $gates) -}}
{{- fail "visibility.enabled needs the feature gate VisibilityOnDemand, which is off: turn it on, or set visibility.enabled=false" -}}
{{- end -}}
true
{{- end -}}
{{- end -}}

{{/* Not empty where the configuration says that there is only ever one of us (leaderElection.leaderElect: false): no Lease
keeps a second one from leading as well. */}}
{{- define "switchyard.alone" -}}
{{- $election := (include "switchyard.config" . | fromYaml).leaderElection | default dict -}}
{{- if eq (toString $election.leaderElect) "false" }}true{{ end -}}
{{- end -}}

{{- define "switchyard.replicas" -}}
{{- if include "switchyard.alone" . }}1{{ else }}{{ .Values.controllerManager.replicas }}{{ end -}}
{{- end -}}

{{/* The first of the `ports` of a Service, as Kueue's chart has them, with those of its values that count here. Takes (dict
"ports" LIST "port" DEFAULT). */}}
{{- define "switchyard.port" -}}
{{- $first := first (.ports | default list) | default dict -}}
port: {{ int ($first.port | default .port) }}{{ with $first.nodePort }}, nodePort: {{ int . }}{{ end -}}
{{- end -}}

{{- define "switchyard.webhookPort" -}}
{{- $first := first (.Values.webhookService.ports | default list) | default dict -}}
{{- int ($first.port | default 443) -}}
{{- end -}}

{{/* The program's image: REGISTRY/REPOSITORY:TAG@DIGEST. A repository or tag of its own is not pinned by the digest of a
release. Kueue's image, which the values of its chart name, is ignored. */}}
{{- define "switchyard.image" -}}
{{- $released := index .Values.images (eq .Values.mode "agent" | ternary "agent" "hub") -}}
{{- $own := eq (include "switchyard.kueuesImage" .) "true" | ternary dict .Values.controllerManager.manager.image -}}
{{- $repository := $own.repository | default $released.repository -}}
{{- if and .Values.global.imageRegistry (not (regexMatch "^(localhost|[^/]*[.:][^/]*)/" $repository)) -}}
{{- $repository = printf "%s/%s" (trimSuffix "/" .Values.global.imageRegistry) $repository -}}
{{- end -}}
{{- $digest := $own.digest | default (empty (or $own.repository $own.tag) | ternary $released.digest "") -}}
{{ $repository }}:{{ $own.tag | default .Chart.AppVersion }}{{ with $digest }}@{{ . }}{{ end }}
{{- end -}}

{{/* The Secrets for pulling it: a list of {name}. */}}
{{- define "switchyard.pullSecrets" -}}
{{- $secrets := list -}}
{{- range concat (.Values.global.imagePullSecrets | default list) (.Values.controllerManager.imagePullSecrets | default list) -}}
{{- $secrets = append $secrets (kindIs "string" . | ternary (dict "name" .) .) -}}
{{- end -}}
{{- toYaml (uniq $secrets) -}}
{{- end -}}

{{- define "switchyard.kueuesImage" -}}
{{- if regexMatch "(^|/)kueue$" .Values.controllerManager.manager.image.repository }}true{{ end -}}
{{- end -}}

{{/* The port of the metrics over HTTPS, as the configuration has it; empty where they are with the probes alone. */}}
{{- define "switchyard.metricsPort" -}}
{{- if ne .Values.mode "agent" -}}
{{- $address := ((include "switchyard.config" . | fromYaml).metrics | default dict).bindAddress | default ":8443" | toString -}}
{{- if ne $address "0" }}{{ last (splitList ":" $address) }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* The servers, beside the webhooks, whose certificates cert-manager makes: a list. */}}
{{- define "switchyard.certified" -}}
{{- $servers := list -}}
{{- if .Values.enableCertManager -}}
{{- if include "switchyard.metricsPort" . }}{{ $servers = append $servers "metrics" }}{{ end -}}
{{- if include "switchyard.visibility" . }}{{ $servers = append $servers "visibility" }}{{ end -}}
{{- end -}}
{{- toYaml $servers -}}
{{- end -}}

{{/* The ClusterRoles of others, by name: a role for people is left to whoever has made it, as Kueue beside us. */}}
{{- define "switchyard.othersRoles" -}}
{{- range (lookup "rbac.authorization.k8s.io/v1" "ClusterRole" "" "").items }}
{{- if ne (dig "metadata" "annotations" "meta.helm.sh/release-name" "" .) $.Release.Name }}
{{ .metadata.name | quote }}: true
{{- end }}
{{- end }}
{{- end -}}

{{/* All objects of a file of several, each with the release's labels and namespace. Takes (dict "root" $ "file" PATH), and
"without" with those that are left out: NAME, or KIND/NAME. */}}
{{- define "switchyard.objects" -}}
{{- $root := .root -}}
{{- $without := .without | default dict -}}
{{- $text := $root.Files.Get .file | required (printf "the chart lacks %s" .file) -}}
{{- range $document := splitList "\n---\n" (replace "serviceaccount:switchyard-system:" (printf "serviceaccount:%s:" $root.Release.Namespace) (replace "namespace: switchyard-system" (printf "namespace: %s" $root.Release.Namespace) $text)) }}
{{- $object := fromYaml $document }}
{{- $kindAndName := printf "%s/%s" $object.kind $object.metadata.name }}
{{- if not (or (hasKey $without $object.metadata.name) (hasKey $without $kindAndName)) }}
{{- $_ := set $object.metadata "labels" (merge (include "switchyard.labels" $root | fromYaml) ($object.metadata.labels | default dict)) }}
---
{{ toYaml $object }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Kueue's configuration with the feature gates of `controllerManager.featureGates`; where it says nothing else, a hub gets
times of the election that let another replica take over in less than 5 s, and with Prometheus the metrics that the alerts
need. */}}
{{- define "switchyard.config" -}}
{{- $config := fromYaml .Values.managerConfig.controllerManagerConfigYaml -}}
{{- if hasKey $config "Error" -}}
{{- fail (printf "managerConfig.controllerManagerConfigYaml is not YAML: %s" $config.Error) -}}
{{- end -}}
{{- $gates := $config.featureGates | default dict -}}
{{- range .Values.controllerManager.featureGates }}{{ $_ := set $gates .name .enabled }}{{ end -}}
{{- if $gates }}{{ $_ := set $config "featureGates" $gates }}{{ end -}}
{{- /* Where the Lease is and what it is called is the roles' to say, which know these names alone. */}}
{{- $election := omit ($config.leaderElection | default dict) "resourceName" "resourceNamespace" -}}
{{- if $config.leaderElection }}{{ $_ := set $config "leaderElection" $election }}{{ end -}}
{{- if and (eq .Values.mode "hub") (not (hasKey $election "leaseDuration")) -}}
{{- $fast := dict "leaseDuration" "3s" "renewDeadline" "2s" "retryPeriod" "500ms" -}}
{{- $_ := set $config "leaderElection" (merge $election $fast) -}}
{{- end -}}
{{- $metrics := $config.metrics | default dict -}}
{{- if and .Values.enablePrometheus (not (hasKey $metrics "enableClusterQueueResources")) -}}
{{- $_ := set $config "metrics" (merge $metrics (dict "enableClusterQueueResources" true)) -}}
{{- end -}}
{{ toYaml $config }}
{{- end -}}
