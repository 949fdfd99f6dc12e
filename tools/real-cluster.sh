# Sourced by ./test: what the tests on a cluster of real kubelets need outside their namespaces. Expects $root and $node.
#
# REAL_CLUSTER names a folder with scripts that make a cluster in network namespaces: up.sh, down.sh, node.sh, kubeproxy.sh,
# and env.sh, which sets W (the folder of the cluster's state), P (the prefix of its namespaces and control groups), NET
# (the first three numbers of its nodes' addresses), POD, SVC, NODES, TOOLS (unpacked Debian packages), and defines kc
# (kubectl), ns and on (commands in a namespace and on a node).

# Prints why there can be no cluster, and fails then.
real_cluster_missing() {
  local file
  [ -n "${REAL_CLUSTER:-}" ] || { echo "REAL_CLUSTER does not name a folder that makes one"; return 1; }
  for file in env.sh up.sh down.sh node.sh kubeproxy.sh; do
    [ -e "$REAL_CLUSTER/$file" ] || { echo "REAL_CLUSTER=$REAL_CLUSTER has no $file"; return 1; }
  done
  [ -n "${KUBEBUILDER_ASSETS:-}" ] || { echo "KUBEBUILDER_ASSETS is not set"; return 1; }
  [ "$(id -u)" -eq 0 ] || { echo "they need root rights"; return 1; }
}

# Prints variables of env.sh, one per line.
real_cluster_values() {
  # shellcheck disable=SC2016
  FAIRLEAD=$root NODEJS=$node BED=${BED:-${KUBEBUILDER_ASSETS:-}} bash -c '
    . "$REAL_CLUSTER/env.sh"
    for name in "$@"; do echo "${!name}"; done' real-cluster "$@"
}

# The cluster has no way to package archives: what up.sh would download, and our image, are made before. Fails with the
# reason in the last lines.
setup_real_cluster() {
  local tools
  tools=$(real_cluster_values TOOLS) || return
  if [ ! -x "$tools/usr/sbin/runc" ]; then
    say "downloading runc and CNI plugins to $tools"
    mkdir -p "$tools/deb" && (cd "$tools/deb" && download_packages runc containernetworking-plugins containerd) || return
    local deb
    for deb in "$tools"/deb/*.deb; do dpkg -x "$deb" "$tools" || return; done
  fi
  "$node" tools/image.mjs --name localhost/fairlead:test --out "$root/dist/image" || return
}

download_packages() {
  apt-get download -qq "$@" || { apt-get update -qq && apt-get download -qq "$@"; }
}

# Makes sure that no other cluster has the same state folder, namespaces and control groups until this shell ends. What a
# killed run of these tests left is removed.
claim_real_cluster() {
  local values
  mapfile -t values < <(real_cluster_values W P)
  real_folder=${values[0]} real_prefix=${values[1]}
  local mark=$real_folder/of-fairlead-tests
  if ip netns list | grep -q "^$real_prefix-cp\b" || { [ -e "$real_folder" ] && [ ! -e "$mark" ]; }; then
    say "$real_folder belongs to another cluster: remove it with $REAL_CLUSTER/down.sh, or set W, P, NET, POD and SVC"
    exit 1
  fi
  mkdir -p "$real_folder"
  exec 9>>"$mark"
  flock -n 9 || { say "$real_folder is in use by another run of these tests: wait, or set W, P, NET, POD and SVC"; exit 1; }
  clear_real_cluster
}

# Removes everything but the mark.
clear_real_cluster() {
  local group
  [ ! -e "$real_folder/sysctl.saved" ] || sysctl -q -p "$real_folder/sysctl.saved"
  find "$real_folder" -mindepth 1 ! -name of-fairlead-tests -delete
  for group in /sys/fs/cgroup/"$real_prefix"-n* /sys/fs/cgroup/*/"$real_prefix"-n*; do
    [ ! -d "$group" ] || find "$group" -depth -type d -exec rmdir {} +
  done
}

release_real_cluster() {
  # down.sh removes the folder with the mark.
  [ ! -d "$real_folder" ] || { clear_real_cluster && rm -rf "$real_folder"; }
}
