{{/* Name of the chart, cut to a label's length. */}}
{{- define "octavo.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* Name that objects start with: the release alone where it says the chart's name already. */}}
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

{{/* Labels that select the agent's pods: fixed for a release's life. */}}
{{- define "octavo.agent.selectorLabels" -}}
app.kubernetes.io/name: {{ include "octavo.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: agent
{{- end }}

{{/* Labels that select the scheduler's pods: fixed for a release's life. */}}
{{- define "octavo.scheduler.selectorLabels" -}}
app.kubernetes.io/name: {{ include "octavo.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: scheduler
{{- end }}

{{/* Refuses values that have been renamed, by their new names. */}}
{{- define "octavo.renamedValues" -}}
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

{{/* Image of every container: a digest wins over a tag. */}}
{{- define "octavo.image" -}}
{{- with .Values.image }}
{{- with .registry }}{{ . }}/{{ end }}{{ .repository }}
{{- if .digest }}@{{ .digest }}{{ else }}:{{ default $.Chart.AppVersion .tag }}{{ end }}
{{- end }}
{{- end }}

{{/* The agent's config file. "Seen" is where the agent's container sees a folder that the host names otherwise. */}}
{{- define "octavo.agent.config" -}}
driverRoot: {{ .Values.agent.driverRoot | quote }}
driverRootSeen: /driver-root
devRoot: {{ .Values.agent.devRoot | quote }}
devRootSeen: /host
procRoot: /proc
sysRoot: /sys
kubeletRoot: {{ .Values.agent.kubeletRoot | quote }}
cdiRoot: {{ .Values.agent.cdiRoot | quote }}
dynamicMig: {{ .Values.agent.dynamicMig | toJson }}
{{- with .Values.agent.owner }}
owner: {{ . | quote }}
{{- end }}
cgroupRoot: /host/sys/fs/cgroup
memoryEnforcement: {{ .Values.agent.memoryEnforcement | quote }}
watchInterval: {{ .Values.agent.watchInterval | quote }}
{{- with .Values.agent.mounts }}
mounts: {{ . | toJson }}
{{- end }}
hookPath: {{ printf "%s/octavo" (trimSuffix "/" .Values.agent.hookDir) | quote }}
{{- end }}

{{/*
How the agent's pods are replaced. The API refuses a surge beside pods that may be missing. Whoever allows missing ones
means them instead of the default's surge, and need not know that there is one.
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

{{/*
Security context without privileges. The user is root because the kubelet's sockets, CDI specs and the folders that they
lie in are root's; as their owner it needs no capability for them, so none is left: not SYS_ADMIN (mounts), not MKNOD
(device files), not SYS_PTRACE (other processes are read by what everyone may read of them), not DAC_OVERRIDE. The agent
alone has KILL, to end processes of any user that have more memory than their share.
*/}}
{{- define "octavo.agent.plainSecurityContext" -}}
privileged: false
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsUser: 0
capabilities:
  drop: [ALL]
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{/* The same for the agent itself. */}}
{{- define "octavo.agent.securityContext" -}}
{{- $context := fromYaml (include "octavo.agent.plainSecurityContext" .) }}
{{- if ne .Values.agent.memoryEnforcement "off" }}
{{- $_ := set $context.capabilities "add" (list "KILL" "SYS_PTRACE") }}
{{- end }}
{{- toYaml $context }}
{{- end }}

{{/* The scheduler's config file. One replica needs no lease, but a rolling update has two for a while. */}}
{{- define "octavo.scheduler.config" -}}
schedulerName: {{ .Values.scheduler.name | quote }}
leaderElection:
  enabled: true
  namespace: {{ .Release.Namespace | quote }}
  name: {{ printf "%s-scheduler" (include "octavo.fullname" .) | quote }}
{{- with .Values.scheduler.config }}
{{ toYaml . }}
{{- end }}
{{- end }}
