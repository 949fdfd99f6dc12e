#!/bin/sh
# Unpacks promtool of Debian's package "prometheus" into .cache/ unless it is there, and prints its path; the package is
# not installed, because it starts servers. tests/monitoring.test.ts uses promtool if it is there.
set -eu
cache=$(realpath -m "$(dirname "$0")/../.cache")
if [ ! -x "$cache/promtool" ]; then
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  mkdir -p "$cache"
  (cd "$folder" && apt-get download prometheus >&2 && dpkg-deb --extract ./*.deb .)
  mv "$folder/usr/bin/promtool" "$cache/promtool"
fi
echo "$cache/promtool"
