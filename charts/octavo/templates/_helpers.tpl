{{/* Name of the chart, cut to a label's length. */}}
{{- define "octavo.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* Name prefix of objects: only the release if it already contains the chart's name. */}}
{{- define "octavo.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- $name := include "octavo.name" . }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{/* Refuses values that have been renamed or removed, and says what to do. */}}
{{- define "octavo.renamedValues" -}}
{{- if and .Values.discover.enabled (eq .Values.discover.serviceAccount.name .Values.serviceAccount.name) }}
{{- fail "discover.serviceAccount.name is the agent's account: give it another name, because its pods run on all nodes and may label them only" }}
{{- end }}
{{- if hasKey .Values.agent "devRoot" }}
{{- fail "agent.devRoot is gone: containers get device files by their numbers, wherever the host has them; remove the value" }}
{{- end }}
{{- range list "privileged" "runtimeClassName" }}
{{- if hasKey $.Values.agent . }}
{{- fail (printf "agent.%s is gone: the agent is always privileged and needs no RuntimeClass; remove the value" .) }}
{{- end }}
{{- end }}
{{- if hasKey .Values.agent "wall" }}
{{- fail "agent.wall is now agent.memoryEnforcement: rename the value" }}
{{- end }}
{{- end }}

{{/* Labels of every object. */}}
{{- define "octavo.labels" -}}
app.kubernetes.io/name: {{ include "octavo.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: octavo
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Image of every container. A digest takes precedence over a tag. */}}
{{- define "octavo.image" -}}
{{- with .Values.image }}
{{- with .registry }}{{ . }}/{{ end }}{{ .repository }}
{{- if .digest }}@{{ .digest }}{{ else }}:{{ default $.Chart.AppVersion .tag }}{{ end }}
{{- end }}
{{- end }}

{{/* The agent's config file. "Seen" marks the path of a host folder in the agent's container. */}}
{{- define "octavo.agent.config" -}}
driverRoot: {{ .Values.agent.driverRoot | quote }}
driverRootSeen: {{ clean (printf "/driver-root/%s" (base .Values.agent.driverRoot)) | quote }}
procRoot: /proc
sysRoot: /host/sys
kubeletRoot: {{ .Values.agent.kubeletRoot | quote }}
cdiRoot: {{ .Values.agent.cdiRoot | quote }}
dynamicMig: {{ .Values.agent.dynamicMig | toJson }}
{{- with .Values.agent.owner }}
owner: {{ . | quote }}
{{- end }}
mode: {{ .Values.agent.mode }}
featureLabels: {{ .Values.agent.featureLabels }}
{{- if .Values.agent.migManager.enabled }}
migManager: true
migReset: {{ .Values.agent.migManager.reset }}
{{- if include "octavo.migManager.configMap" . }}
migConfigFile: /etc/octavo-mig/config.yaml
{{- end }}
{{- end }}
{{- with .Values.agent.devicePlugin }}
{{- $configMap := include "octavo.devicePlugin.configMap" $ }}
{{- if or $configMap .flags }}
devicePlugin:
  {{- if $configMap }}
  configFolder: /etc/octavo-device-plugin
  {{- with .config.default }}
  defaultConfig: {{ . | quote }}
  {{- end }}
  fallback: {{ .config.fallbackStrategies | toJson }}
  {{- end }}
  {{- with .flags }}
  flags: {{ . | toJson }}
  {{- end }}
{{- end }}
{{- end }}
cgroupRoot: /host/sys/fs/cgroup
shareTmpfs: true
gpuShares: {{ .Values.agent.gpuShares | toString | quote }}
memoryEnforcement: {{ .Values.agent.memoryEnforcement | quote }}
timeEnforcement: {{ .Values.agent.timeEnforcement | quote }}
memorySwap: {{ .Values.agent.memorySwap | quote }}
{{- if eq .Values.agent.memorySwap "processes" }}
{{- if ne .Values.agent.timeEnforcement "leases" }}
{{- fail "octavo: agent.memorySwap is processes and agent.timeEnforcement is off: a process that was moved waits for its lease; set agent.timeEnforcement to leases" }}
{{- end }}
{{- if has .Values.agent.memoryEnforcement (list "driver" "off") }}
{{- fail (printf "octavo: agent.memorySwap is processes and agent.memoryEnforcement is %s: the guard lends memory; set agent.memoryEnforcement to guard or auto" .Values.agent.memoryEnforcement) }}
{{- end }}
{{- else if .Values.agent.swapHostMemory }}
{{- fail "octavo: agent.swapHostMemory is set and agent.memorySwap is off; set agent.memorySwap to processes, or leave out the amount" }}
{{- end }}
{{- with .Values.agent.swapHostMemory }}
swapHostMemory: {{ . | quote }}
{{- end }}
{{- with .Values.agent.exemptNamespaces }}
exemptNamespaces: {{ . | toJson }}
{{- end }}
{{- with .Values.agent.kernelLog }}
kernelLog: {{ . | quote }}
{{- end }}
minOverflowPolicy: {{ .Values.agent.minOverflowPolicy }}
watchInterval: {{ .Values.agent.watchInterval | quote }}
{{- with .Values.agent.mounts }}
mounts: {{ . | toJson }}
{{- end }}
hookDirSeen: /host/hook-dir
hookDir: {{ trimSuffix "/" .Values.agent.hookDir | quote }}
{{- if .Values.computeDomains.enabled }}
computeDomains: true
daemonNamespace: {{ .Release.Namespace | quote }}
{{- include "octavo.imex" . | nindent 0 }}
{{- with .Values.computeDomains.imex.hostSocketPath }}
  hostSocketPath: {{ . | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* The ConfigMap with the device plugin's config files; empty: none. */}}
{{- define "octavo.devicePlugin.configMap" -}}
{{- with .Values.agent.devicePlugin.config }}
{{- if and .name .map }}
{{- fail "octavo: agent.devicePlugin.config has both a name and a map: the files are in a ConfigMap of that name, or in the map; remove one of the two" }}
{{- end }}
{{- if and .default (not .name) (not (hasKey .map .default)) }}
{{- fail (printf "octavo: agent.devicePlugin.config.default is %q, which agent.devicePlugin.config.map does not have" .default) }}
{{- end }}
{{- if .name }}{{ .name }}{{ else if .map }}{{ include "octavo.fullname" $ }}-device-plugin{{ end }}
{{- end }}
{{- end }}

{{/* The ConfigMap with layouts of MIG devices; empty: none. */}}
{{- define "octavo.migManager.configMap" -}}
{{- $manager := .Values.agent.migManager }}
{{- with $manager.config }}
{{- if and .name .layouts }}
{{- fail "octavo: agent.migManager.config has both a name and layouts: the file is in a ConfigMap of that name, or made of the layouts; remove one of the two" }}
{{- end }}
{{- if and (or .name .layouts) (not $manager.enabled) }}
{{- fail "octavo: agent.migManager.config is set and agent.migManager.enabled is false" }}
{{- end }}
{{- if .name }}{{ .name }}{{ else if .layouts }}{{ include "octavo.fullname" $ }}-mig{{ end }}
{{- end }}
{{- end }}

{{/* Who runs the IMEX services, and what keeps domains apart. Controller and agents need the same. */}}
{{- define "octavo.imex" -}}
{{- with .Values.computeDomains.imex }}
{{- if and (eq .mode "hostManaged") (eq .isolation "channel") }}
{{- fail "octavo: computeDomains.imex.isolation: channel needs daemons of the controller, and computeDomains.imex.mode is hostManaged: set one of the two to its default" }}
{{- end }}
{{- if and .encryption (eq .mode "hostManaged") }}
{{- fail "octavo: computeDomains.imex.encryption is of the controller's daemons, and computeDomains.imex.mode is hostManaged: turn it off, and set the keys in the config of the host's service" }}
{{- end }}
{{- if and .hostSocketPath (ne .mode "hostManaged") }}
{{- fail "octavo: computeDomains.imex.hostSocketPath is set and computeDomains.imex.mode is driverManaged: the host's service is not asked then; remove one of the two" }}
{{- end -}}
imex:
  mode: {{ .mode }}
  isolation: {{ .isolation }}
{{- end }}
{{- end }}

{{/*
Update strategy of the agent's pods. The API rejects a surge together with unavailable pods. A user who permits
unavailable pods wants them instead of the default surge, so the surge is set to 0.
*/}}
{{- define "octavo.agent.updateStrategy" -}}
{{- $strategy := deepCopy .Values.agent.updateStrategy }}
{{- with get $strategy "rollingUpdate" }}
{{- if regexMatch "[1-9]" (get . "maxUnavailable" | toString) }}
{{- $_ := set . "maxSurge" 0 }}
{{- end }}
{{- end }}
{{- toYaml $strategy }}
{{- end }}

{{/* The scheduler's config file. */}}
{{- define "octavo.scheduler.config" -}}
schedulerName: {{ .Values.scheduler.name | quote }}
{{ include "octavo.leaderElection" (dict "root" . "component" "scheduler") }}
{{- if and (include "octavo.repairAfterSeconds" .) (not (hasKey .Values.scheduler.config "repairBy")) }}
repairBy: Controller
{{- end }}
{{- with .Values.scheduler.config }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/*
Seconds after which the controller deletes members of gangs on lost nodes; empty: it does not. It does so with the budget of
HealthPolicies, unless the scheduler's config says otherwise.
*/}}
{{- define "octavo.repairAfterSeconds" -}}
{{- $config := .Values.scheduler.config }}
{{- $after := ternary (int (get $config "repairAfterSeconds")) 60 (hasKey $config "repairAfterSeconds") }}
{{- $by := get $config "repairBy" | default "Controller" }}
{{- if and .Values.scheduler.enabled (not .Values.health.enabled) (hasKey $config "repairBy") (eq $by "Controller") (gt $after 0) }}
{{- fail "octavo: scheduler.config.repairBy is Controller and health.enabled is false: no program deletes members of gangs on lost nodes then; set health.enabled, or leave out repairBy" }}
{{- end }}
{{- if and .Values.scheduler.enabled .Values.health.enabled (eq $by "Controller") (gt $after 0) }}{{ $after }}{{ end }}
{{- end }}

{{/* Whether the controller has something to do; empty: it has not. */}}
{{- define "octavo.controller.enabled" -}}
{{- if or .Values.computeDomains.enabled .Values.translation.enabled .Values.health.enabled }}true{{ end }}
{{- end }}

{{/* Name of the webhook's Service and of the Secret with its certificate. */}}
{{- define "octavo.webhook" -}}
{{ include "octavo.fullname" . }}-controller-webhook
{{- end }}

{{/* The controller's config file. */}}
{{- define "octavo.controller.config" -}}
namespace: {{ .Release.Namespace | quote }}
{{- if .Values.computeDomains.enabled }}
maxNodesPerImexDomain: {{ .Values.computeDomains.maxNodesPerImexDomain }}
{{- include "octavo.imex" . | nindent 0 }}
  encryption: {{ .Values.computeDomains.imex.encryption }}
{{- with .Values.computeDomains.daemon }}
daemon:
  image: {{ include "octavo.image" $ | quote }}
  imagePullPolicy: {{ $.Values.image.pullPolicy }}
  {{- with $.Values.imagePullSecrets }}
  imagePullSecrets: {{ . | toJson }}
  {{- end }}
  resources:
    requests: {{ include "octavo.amounts" .resources.requests }}
    limits: {{ include "octavo.amounts" .resources.limits }}
  logLevel: {{ .logLevel | quote }}
  serviceAccountName: {{ .serviceAccount.name | quote }}
  priorityClassName: {{ .priorityClassName | quote }}
{{- end }}
{{- else }}
computeDomains: false
{{- end }}
{{- with .Values.translation }}
{{- if .enabled }}
translation:
  enabled: true
  listen: {{ printf ":%d" (int .port) | quote }}
  hosts: [{{ printf "%s.%s.svc" (include "octavo.webhook" $) $.Release.Namespace | quote }}]
  secretName: {{ include "octavo.webhook" $ | quote }}
  webhookName: "{{ include "octavo.fullname" $ }}-translation"
  schedulerName: {{ .schedulerName | quote }}
  models: {{ .models | toJson }}
  collectAfterSeconds: {{ int .collectAfterSeconds }}
  drainSeconds: {{ int .drainSeconds }}
{{- end }}
{{- end }}
{{- if .Values.health.enabled }}
health:
  enabled: true
  {{- with include "octavo.repairAfterSeconds" . }}
  repair: {afterSeconds: {{ . }}, schedulerName: {{ $.Values.scheduler.name | quote }}}
  {{- end }}
{{- end }}
{{ include "octavo.leaderElection" (dict "root" . "component" "controller") }}
{{- end }}

{{/* Amounts by resource as JSON, each as text: config files have no numbers there. */}}
{{- define "octavo.amounts" -}}
{{- $amounts := dict }}
{{- range $name, $amount := . }}
{{- $_ := set $amounts $name (toString $amount) }}
{{- end }}
{{- toJson $amounts }}
{{- end }}

{{/* CEL: whether a request is one of an account. */}}
{{- define "octavo.isRequester" -}}
request.userInfo.username == 'system:serviceaccount:{{ .root.Release.Namespace }}:{{ .account.name }}'
{{- end }}

{{/* CEL: the node of the requester's token; empty if it is bound to none. */}}
{{- define "octavo.tokenNode" -}}
request.userInfo.?extra['authentication.kubernetes.io/node-name'][0].orValue('')
{{- end }}

{{/* CEL: whether labels or annotations change only at keys `k` for which `isKey` is true. */}}
{{- define "octavo.changesKeysOnly" -}}
object.metadata.?{{ .map }}.orValue({}).all(k, {{ .isKey }}
|| (k in oldObject.metadata.?{{ .map }}.orValue({}) && object.metadata.{{ .map }}[k] == oldObject.metadata.{{ .map }}[k]))
&& oldObject.metadata.?{{ .map }}.orValue({}).all(k, {{ .isKey }} || k in object.metadata.?{{ .map }}.orValue({}))
{{- end }}

{{/* CEL: whether a write changes only labels of a node whose key `k` the argument is true for. Its status has rights of its own. */}}
{{- define "octavo.changesNodeLabelsOnly" -}}
object.spec == oldObject.spec && {{ include "octavo.changesNodeSpecOrLabelsOnly" . }}
{{- end }}

{{/* CEL: the same, but its spec has conditions of its own. */}}
{{- define "octavo.changesNodeSpecOrLabelsOnly" -}}
request.operation == 'UPDATE'
&& object.metadata.?annotations == oldObject.metadata.?annotations
&& object.metadata.?finalizers == oldObject.metadata.?finalizers
&& object.metadata.?ownerReferences == oldObject.metadata.?ownerReferences
&& {{ include "octavo.changesKeysOnly" (dict "map" "labels" "isKey" .) }}
{{- end }}

{{/* CEL: whether a write leaves the spec of a node as it is, but for the taint with the key of the argument. */}}
{{- define "octavo.changesNodeTaintOnly" -}}
{{- range list "podCIDR" "podCIDRs" "providerID" "unschedulable" "configSource" "externalID" -}}
object.spec.?{{ . }} == oldObject.spec.?{{ . }} && {{ end -}}
object.spec.?taints.orValue([]).filter(t, t.key != '{{ . }}') == oldObject.spec.?taints.orValue([]).filter(t, t.key != '{{ . }}')
{{- end }}

{{/* CEL: whether `k` is a node label that an agent writes: one of those of GPU feature discovery, or the state of the MIG layout. */}}
{{- define "octavo.isAgentLabel" -}}
{{- $part := "product|count|memory|replicas|sharing-strategy|multiprocessors|slices[.](gi|ci)|engines[.](copy|decoder|encoder|jpeg|ofa)" -}}
{{- $gpu := "family|compute[.](major|minor)|machine|mode|clique" -}}
{{- $cuda := "cuda[.](driver|runtime)(-version)?[.](major|minor|rev|revision|full)" -}}
{{- $other := "gfd[.]timestamp|mig[.](capable|strategy|config[.]state)|mps[.]capable|vgpu[.](present|host-driver-(version|branch))" -}}
k.matches('^nvidia[.]com/(gpu[.]({{ $part }}|{{ $gpu }})|mig-[a-z0-9.-]+[.]({{ $part }})|{{ $cuda }}|{{ $other }})$')
{{- end }}

{{/* The drivers that an agent is, as a list of JSON. */}}
{{- define "octavo.agent.drivers" -}}
{{- $drivers := list "gpu.nvidia.com" }}
{{- if .Values.computeDomains.enabled }}
{{- $drivers = append $drivers "compute-domain.nvidia.com" }}
{{- end }}
{{- toJson $drivers }}
{{- end }}

{{/* Who may read the metrics of a component, by its setting: Prometheus has to, where a PodMonitor sends it. */}}
{{- define "octavo.metricsAccess" -}}
{{- if ne .setting "auto" -}}
{{- .setting -}}
{{- else if .Values.monitoring.podMonitor.enabled -}}
everyone
{{- else -}}
loopback
{{- end -}}
{{- end }}

{{/* Whether Prometheus may read the metrics of a component, by its setting; empty: it may not. */}}
{{- define "octavo.metricsForAll" -}}
{{- if eq (include "octavo.metricsAccess" .) "everyone" }}true{{ end }}
{{- end }}
