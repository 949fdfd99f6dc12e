{{- define "fairlead.validate" -}}
{{- $parts := list "proxy" "proxy-dns" "all" "policy" }}
{{- if not (has .Values.parts $parts) }}
{{- fail (printf "parts: must be one of %s, not %q" (join ", " $parts) (toString .Values.parts)) }}
{{- end }}
{{- if and (or .Values.podMonitor .Values.serviceMonitor) (not .Values.metricsAddress) }}
{{- fail "podMonitor, serviceMonitor: need metricsAddress, such as 0.0.0.0; Prometheus does not reach 127.0.0.1 of the nodes" }}
{{- end }}
{{- end }}
