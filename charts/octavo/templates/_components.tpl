{{/*
Objects that several components have. Their argument is a dict: `root`, the chart's context; `component`, its name; and
`settings`, its values. A Deployment may have a `webhookPort`.
*/}}

{{/* Selector labels of a component's pods. They never change within a release. */}}
{{- define "octavo.selectorLabels" -}}
app.kubernetes.io/name: {{ include "octavo.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* Metadata of a component's object in the release's namespace, without annotations. */}}
{{- define "octavo.metadata" -}}
name: {{ include "octavo.fullname" .root }}-{{ .component }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "octavo.labels" .root | nindent 2 }}
  app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* The service account `settings.serviceAccount`. */}}
{{- define "octavo.serviceAccount" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .settings.serviceAccount.name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "octavo.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
  {{- with .settings.serviceAccount.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

{{/* The config file `octavo.<component>.config`. */}}
{{- define "octavo.configMap" -}}
apiVersion: v1
kind: ConfigMap
metadata:
  {{- include "octavo.metadata" . | nindent 2 }}
data:
  {{ .component }}.yaml: |
    {{- include (printf "octavo.%s.config" .component) .root | nindent 4 }}
{{- end }}

{{/* Replicas of `octavo <component>`, of which a lease selects one. They need no right of the node. */}}
{{- define "octavo.deployment" -}}
{{- $root := .root }}
{{- $settings := .settings }}
apiVersion: apps/v1
kind: Deployment
metadata:
  {{- include "octavo.metadata" . | nindent 2 }}
spec:
  replicas: {{ $settings.replicas }}
  selector:
    matchLabels:
      {{- include "octavo.selectorLabels" . | nindent 6 }}
  strategy:
    type: RollingUpdate
    rollingUpdate:
      maxSurge: 1
      maxUnavailable: 0
  template:
    metadata:
      labels:
        {{- include "octavo.labels" $root | nindent 8 }}
        app.kubernetes.io/component: {{ .component }}
        {{- with $settings.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      annotations:
        # A changed config file replaces the pods.
        octavo.dev/config-checksum: {{ include (printf "octavo.%s.config" .component) $root | sha256sum | trunc 16 | quote }}
        {{- with $settings.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      serviceAccountName: {{ $settings.serviceAccount.name }}
      priorityClassName: {{ $settings.priorityClassName | quote }}
      terminationGracePeriodSeconds: {{ $settings.terminationGracePeriodSeconds }}
      {{- with $root.Values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        {{- toYaml $settings.podSecurityContext | nindent 8 }}
      {{- with $settings.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      affinity:
        {{- if $settings.affinity }}
        {{- toYaml $settings.affinity | nindent 8 }}
        {{- else }}
        # The loss of one node must not affect all replicas.
        podAntiAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
            - weight: 100
              podAffinityTerm:
                topologyKey: kubernetes.io/hostname
                labelSelector:
                  matchLabels:
                    {{- include "octavo.selectorLabels" . | nindent 20 }}
        {{- end }}
      {{- with $settings.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      containers:
        - name: {{ .component }}
          image: {{ include "octavo.image" $root | quote }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          command:
            - octavo
            - {{ .component }}
            - --config=/etc/octavo/{{ .component }}.yaml
            - {{ printf "--metrics-listen=:%d" (int $settings.metricsPort) }}
            - {{ printf "--metrics-access=%s" (include "octavo.metricsAccess" (dict "Values" $root.Values "setting" $settings.metricsAccess)) }}
          env:
            {{- if eq .component "controller" }}
            # glibc keeps freed memory in an arena of each thread. What is freed in the only one is used again.
            - name: MALLOC_ARENA_MAX
              value: "1"
            {{- end }}
            # Identity of the lease holder.
            - name: POD_NAME
              valueFrom:
                fieldRef:
                  fieldPath: metadata.name
            - name: RUST_LOG
              value: {{ $settings.logLevel | quote }}
            {{- with $settings.extraEnv }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          ports:
            - name: metrics
              containerPort: {{ $settings.metricsPort }}
              protocol: TCP
            {{- with .webhookPort }}
            - name: webhook
              containerPort: {{ . }}
              protocol: TCP
            {{- end }}
          # The first lists of a large cluster take a while.
          startupProbe:
            httpGet: {path: /healthz, port: metrics}
            periodSeconds: 2
            failureThreshold: 60
          livenessProbe:
            httpGet: {path: /healthz, port: metrics}
            periodSeconds: 10
            timeoutSeconds: 5
            failureThreshold: 6
          readinessProbe:
            httpGet: {path: /readyz, port: metrics}
            periodSeconds: 5
            timeoutSeconds: 5
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities:
              drop: [ALL]
          resources:
            {{- toYaml $settings.resources | nindent 12 }}
          terminationMessagePolicy: FallbackToLogsOnError
          volumeMounts:
            - name: config
              mountPath: /etc/octavo
              readOnly: true
      volumes:
        - name: config
          configMap:
            name: {{ include "octavo.fullname" $root }}-{{ .component }}
{{- end }}

{{/* Drains of nodes leave all replicas but one. */}}
{{- define "octavo.podDisruptionBudget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "octavo.metadata" . | nindent 2 }}
spec:
  maxUnavailable: 1
  # An unready replica does no work, so a drain need not wait for it.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "octavo.selectorLabels" . | nindent 6 }}
{{- end }}

{{/* Binds the component's ClusterRole, or its Role (`kind`), to its service account. */}}
{{- define "octavo.roleBinding" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}Binding
metadata:
  name: {{ include "octavo.fullname" .root }}-{{ .component }}
  {{- if eq .kind "Role" }}
  namespace: {{ .root.Release.Namespace }}
  {{- end }}
  labels:
    {{- include "octavo.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ include "octavo.fullname" .root }}-{{ .component }}
subjects:
  - kind: ServiceAccount
    name: {{ .settings.serviceAccount.name }}
    namespace: {{ .root.Release.Namespace }}
{{- end }}

{{/* Rules of a Role: leader election by the component's lease. */}}
{{- define "octavo.leaseRules" -}}
# Leader election. The right to create cannot be restricted to a name.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [{{ include "octavo.fullname" .root }}-{{ .component }}]
  verbs: [get, update]
{{- end }}

{{/* Part of a config file: the component's lease. One replica needs it, too: a rolling update briefly has two. */}}
{{- define "octavo.leaderElection" -}}
leaderElection:
  enabled: true
  namespace: {{ .root.Release.Namespace | quote }}
  name: {{ printf "%s-%s" (include "octavo.fullname" .root) .component | quote }}
{{- end }}

{{/* Scrapes `port` of the component's pods. */}}
{{- define "octavo.podMonitor" -}}
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata:
  {{- include "octavo.metadata" . | nindent 2 }}
    {{- with .root.Values.monitoring.podMonitor.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  selector:
    matchLabels:
      {{- include "octavo.selectorLabels" . | nindent 6 }}
  podMetricsEndpoints:
    - port: {{ .port }}
      path: /metrics
      interval: {{ .root.Values.monitoring.podMonitor.interval }}
{{- end }}

{{/* Selects the metrics of the component's pods of this release by the job that its PodMonitor gives them; empty: none does. */}}
{{- define "octavo.jobSelector" -}}
{{- if .root.Values.monitoring.podMonitor.enabled -}}
{{ printf `{job="%s/%s-%s"}` .root.Release.Namespace (include "octavo.fullname" .root) .component }}
{{- end -}}
{{- end }}

{{/*
An alert of a PrometheusRule. Its argument is a dict of its own: `rule`, the chart's values of it; `name`; `expr`; `for`; `severity`; and
the annotations `summary` and `description`.
*/}}
{{- define "octavo.alert" -}}
- alert: {{ .name }}
  expr: |-
    {{- .expr | nindent 4 }}
  for: {{ .for }}
  labels:
    severity: {{ .severity }}
  annotations:
    summary: {{ .summary | quote }}
    description: {{ .description | quote }}
    {{- with .rule.runbookUrl }}
    runbook_url: {{ printf "%s#%s" . (lower $.name) | quote }}
    {{- end }}
{{- end }}
