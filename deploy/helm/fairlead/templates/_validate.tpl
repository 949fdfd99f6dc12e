{{- define "fairlead.validate" -}}
{{- $parts := list "proxy" "proxy-dns" "all" "policy" }}
{{- if not (has .Values.parts $parts) }}
{{- fail (printf "parts: must be one of %s, not %q" (join ", " $parts) (toString .Values.parts)) }}
{{- end }}
{{- if and (or .Values.podMonitor .Values.serviceMonitor) (not .Values.metricsAddress) }}
{{- fail "podMonitor, serviceMonitor: need metricsAddress, such as 0.0.0.0; Prometheus does not reach 127.0.0.1 of the nodes" }}
{{- end }}
{{- end }}

{{- define "fairlead.configurationHash" -}}
{{- omit .Values "image" "imagePullPolicy" "imagePullSecrets" "labels" "annotations" "monitorLabels" "agent" "dns" "addresses" "global" | toJson | sha256sum -}}
{{- end }}

{{- define "fairlead.keptDnsService" -}}
{{- $release := .Release.Name }}
{{- $address := .Values.dnsAddress }}
{{- if has .Values.parts (list "proxy-dns" "all") }}
{{- with lookup "v1" "Service" "kube-system" "kube-dns" }}
{{- if ne (get (.metadata.annotations | default dict) "meta.helm.sh/release-name") $release }}
{{- if ne .spec.clusterIP $address }}
{{- fail (printf "dnsAddress: the Service kube-system/kube-dns of this cluster has %s, not %s" .spec.clusterIP $address) }}
{{- end -}}
kept
{{- end }}
{{- end }}
{{- end }}
{{- end }}
