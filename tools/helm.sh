#!/bin/sh
# Builds helm into .cache/ from its Go module unless it is there, and prints its path. src/cli/helm-chart.built.test.ts
# checks the chart with the program that HELM names. Fails where Go or its module proxy is absent.
set -eu
version=v3.16.4
cache=$(realpath -m "$(dirname "$0")/../.cache")
if [ ! -x "$cache/helm" ]; then
  command -v go >/dev/null || { echo "helm is built with Go, which is not installed" >&2; exit 1; }
  GOBIN=$cache go install -trimpath -ldflags '-s -w' "helm.sh/helm/v3/cmd/helm@$version" >&2
fi
echo "$cache/helm"
