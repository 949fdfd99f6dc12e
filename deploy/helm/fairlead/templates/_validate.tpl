{{- define "fairlead.validate" -}}
{{- $parts := list "proxy" "proxy-dns" "all" "policy" }}
{{- if not (has .Values.parts $parts) }}
{{- fail (printf "parts: must be one of %s, not %q" (join ", " $parts) (toString .Values.parts)) }}
{{- end }}
{{- end }}
