#!/bin/sh
# Builds kubectl 1.33 into .cache/ unless it is there, and prints its path. Fails where Go or its module proxy is absent.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
binary=$here/../../.cache/kubectl-1.33
if [ ! -x "$binary" ] || [ "$here/go.mod" -nt "$binary" ]; then
  command -v go >/dev/null || { echo 'kubectl 1.33 is built with Go, which is not installed' >&2; exit 1; }
  mkdir -p "$(dirname "$binary")"
  version=$(sed -n 's/.*k8s.io\/kubectl v0\.\(.*\)/v1.\1/p' "$here/go.mod")
  cd "$here"
  go build -trimpath -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$version" -o "$binary.$$" . >&2
  mv "$binary.$$" "$binary"
fi
realpath "$binary"
