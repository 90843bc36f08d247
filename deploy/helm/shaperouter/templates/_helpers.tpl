{{/* Labels of everything. */}}
{{- define "shaperouter.labels" -}}
app.kubernetes.io/name: shaperouter
{{- end }}

{{/* A reference to an image: of (dict "image" … "override" … "context" $). */}}
{{- define "shaperouter.image" -}}
{{- $override := .override | default dict -}}
{{- $digest := $override.digest | default (empty $override.tag | ternary .image.digest "") -}}
{{- if $digest -}}
{{ .image.repository }}@{{ $digest }}
{{- else -}}
{{ .image.repository }}:{{ $override.tag | default .image.tag | default .context.Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* Variables of a file of deploy/kubernetes, as a mapping. */}}
{{- define "shaperouter.variables" -}}
{{- range splitList "\n" . }}
{{- if and (trim .) (not (hasPrefix "#" .)) }}
{{ (splitn "=" 2 .)._0 }}: {{ (splitn "=" 2 .)._1 | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* The settings of all roles, of routers and of workers. */}}
{{- define "shaperouter.settings" -}}
{{- $all := include "shaperouter.variables" (.Files.Get "files/shaperouter.env") | fromYaml }}
{{- $router := include "shaperouter.variables" (.Files.Get "files/router.env") | fromYaml }}
{{- $worker := include "shaperouter.variables" (.Files.Get "files/worker.env") | fromYaml }}
{{- $_ := set $all "SHAPEROUTER_MODEL" (include "shaperouter.models" (dict "names" list "context" $)) }}
{{- if .Values.tracing.enabled }}
{{- $all = merge (include "shaperouter.variables" (.Files.Get "files/tracing.env") | fromYaml) $all }}
{{- $_ := set $all "OTEL_EXPORTER_OTLP_ENDPOINT" .Values.tracing.endpoint }}
{{- end }}
{{- if .Values.tokens }}
{{- $_ := set $router "SHAPEROUTER_TOKENS" "/etc/shaperouter/clients/clients.toml" }}
{{- end }}
{{- dict
  "shaperouter" (mergeOverwrite $all .Values.settings.all)
  "shaperouter-router" (mergeOverwrite $router .Values.settings.router)
  "shaperouter-worker" (mergeOverwrite $worker .Values.settings.worker)
  | toYaml }}
{{- end }}

{{/* SHAPEROUTER_MODEL of (dict "names" … "context" $): of all models if no name is given. */}}
{{- define "shaperouter.models" -}}
{{- $names := .names }}
{{- $found := list }}
{{- range .context.Values.models }}
{{- if or (empty $names) (has .name $names) }}
{{- $found = append $found (empty .source | ternary .name (printf "%s=%s" .name .source)) }}
{{- end }}
{{- end }}
{{- join " " $found }}
{{- end }}

{{/* Name of a pool's StatefulSet. */}}
{{- define "shaperouter.pool" -}}
shaperouter-{{ .name }}
{{- end }}

{{- define "shaperouter.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "shaperouter.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* Pods on different nodes and zones, if possible; of their labels. */}}
{{- define "shaperouter.spread" -}}
{{- $labels := . -}}
{{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
- maxSkew: 1
  topologyKey: {{ . }}
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- toYaml $labels | nindent 6 }}
{{- end }}
{{- end }}

{{- define "shaperouter.dnsPorts" -}}
- {port: 53, protocol: UDP}
- {port: 53, protocol: TCP}
- {port: 5353, protocol: UDP}
- {port: 5353, protocol: TCP}
{{- end }}
