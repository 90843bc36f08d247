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

{{/* Variables of both roles that come from values other than settings. */}}
{{- define "shaperouter.common" -}}
{{- $found := include "shaperouter.variables" (.Files.Get "files/shaperouter.env") | fromYaml }}
{{- if .Values.tracing.enabled }}
{{- $found = mergeOverwrite $found (include "shaperouter.variables" (.Files.Get "files/tracing.env") | fromYaml) }}
{{- $_ := set $found "OTEL_EXPORTER_OTLP_ENDPOINT" .Values.tracing.endpoint }}
{{- end }}
{{- toYaml $found }}
{{- end }}

{{/* Variables of routers, as a mapping. */}}
{{- define "shaperouter.routerSettings" -}}
{{- $found := include "shaperouter.common" . | fromYaml }}
{{- $found = mergeOverwrite $found (include "shaperouter.variables" (.Files.Get "files/router.env") | fromYaml) }}
{{- $_ := set $found "SHAPEROUTER_MODEL" (include "shaperouter.models" (dict "names" list "context" $)) }}
{{- with dig "limits" "memory" "" (.Values.router.resources | default dict) }}
{{- $_ := set $found "SHAPEROUTER_MAX_RECORDING_MEMORY" (include "shaperouter.part" (dict "of" . "by" 2)) }}
{{- $_ := set $found "SHAPEROUTER_MAX_TENSOR_MEMORY" (include "shaperouter.part" (dict "of" . "by" 4)) }}
{{- end }}
{{- if .Values.tokens }}
{{- $_ := set $found "SHAPEROUTER_TOKENS" "/etc/shaperouter/clients/clients.toml" }}
{{- end }}
{{- mergeOverwrite $found (.Values.settings.all | default dict) (.Values.settings.router | default dict) | toYaml }}
{{- end }}

{{/* Variables of a pool's workers, as a mapping: of (dict "pool" … "device" … "own" … "context" $). */}}
{{- define "shaperouter.workerSettings" -}}
{{- $values := .context.Values }}
{{- $found := include "shaperouter.common" .context | fromYaml }}
{{- $found = mergeOverwrite $found (include "shaperouter.variables" (.context.Files.Get "files/worker.env") | fromYaml) }}
{{- $_ := set $found "SHAPEROUTER_MODEL" (include "shaperouter.models" (dict "names" .pool.models "context" .context)) }}
{{- $found = mergeOverwrite $found (.device.settings | default dict) ($values.settings.all | default dict) ($values.settings.worker | default dict) }}
{{- with .pool.dtype }}{{- $_ := set $found "SHAPEROUTER_DTYPE" . }}{{- end }}
{{- mergeOverwrite $found .own | toYaml }}
{{- end }}

{{/* terminationGracePeriodSeconds of (dict "settings" … "beside" …): the grace of the service, and the
seconds that a stop takes beside it. */}}
{{- define "shaperouter.stopSeconds" -}}
{{- $grace := .settings.SHAPEROUTER_GRACE }}
{{- if not (regexMatch "^[0-9]+([.][0-9]*)?$" $grace) }}
{{- fail (printf "SHAPEROUTER_GRACE: must be a number of seconds such as 300, got %q" $grace) }}
{{- end }}
{{- addf $grace .beside | ceil | int64 }}
{{- end }}

{{/* A quantity of memory, divided: of (dict "of" … "by" …), in whole MiB. */}}
{{- define "shaperouter.part" -}}
{{- $text := kindIs "string" .of | ternary (toString .of) (printf "%.0f" (float64 .of)) }}
{{- $units := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 }}
{{- $unit := regexReplaceAll "^[0-9.]+" $text "" }}
{{- if not (hasKey $units $unit) }}
{{- fail (printf "router.resources: limits.memory must be a quantity such as 2Gi, got %q" $text) }}
{{- end }}
{{- divf (mulf (regexFind "^[0-9.]+" $text | float64) (index $units $unit)) (mulf 1048576 .by) | floor | int64 }}MiB
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

{{/* The smallest number of workers of (dict "pool" … "context" $) that is not fixed. */}}
{{- define "shaperouter.minimum" -}}
{{- $usual := .context.Values.autoscaling.scaleToZero | ternary 0 2 }}
{{- kindIs "invalid" .pool.minimum | ternary $usual .pool.minimum }}
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

{{/* Spreads pods over nodes and zones where possible: of the labels of the pods. */}}
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
