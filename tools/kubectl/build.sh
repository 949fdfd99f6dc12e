#!/bin/sh
# Builds kubectl of a minor version (1.33 unless the argument names another) into .cache/ unless it is there, and
# prints its path. Fails where Go or its module proxy is absent.
#
# The modules of 1.33, which the default tests use, are pinned in 1.33/. Other versions are for the comparison in
# tests/kubectl-versions.netns.test.ts; their modules follow from the release of k8s.io/kubectl in `release`.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
minor=${1:-1.33}
case $minor in
  1.27) release=0.27.3 ;;
  1.28) release=0.28.3 ;;
  1.29) release=0.29.6 ;;
  1.30) release=0.30.14 ;;
  1.31) release=0.31.3 ;;
  1.32) release=0.32.3 ;;
  1.33) release=$(sed -n 's/.*k8s.io\/kubectl v//p' "$here/1.33/go.mod") ;;
  1.34) release=0.34.13 ;;
  1.35) release=0.35.10 ;;
  1.36) release=0.36.6 ;;
  *) echo "kubectl $minor is not known here: 1.27 to 1.36 are" >&2; exit 1 ;;
esac
cache=$(realpath -m "$here/../../.cache")
binary=$cache/kubectl-$minor
if [ ! -x "$binary" ] || [ "$here/build.sh" -nt "$binary" ] || [ "$here/main.go" -nt "$binary" ]; then
  command -v go >/dev/null || { echo "kubectl $minor is built with Go, which is not installed" >&2; exit 1; }
  folder=$cache/kubectl-source-$minor
  mkdir -p "$folder"
  cp "$here/main.go" "$folder/"
  cd "$folder"
  if [ -f "$here/$minor/go.mod" ]; then
    cp "$here/$minor/go.mod" "$here/$minor/go.sum" .
  else
    rm -f go.mod go.sum
    go mod init kubectl 2>/dev/null
    go mod edit -require "k8s.io/kubectl@v$release" -require "k8s.io/component-base@v$release"
    go mod tidy >&2
  fi
  go build -trimpath -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=v1.${release#0.}" -o "$binary.$$" . >&2
  mv "$binary.$$" "$binary"
fi
echo "$binary"
