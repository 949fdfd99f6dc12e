#!/usr/bin/env bash
# Brings in the programs that a part of the tests needs: set-up.sh unit|built|netns|vm|real|chaos. Prints lines of the form
# NAME=VALUE, the environment of its tests. Status 75: the part cannot run here, for the reason in the last line of
# standard error.
set -euo pipefail
root=$(dirname "$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")")
cd "$root"
# shellcheck source=tools/setup.sh
. "$root/tools/setup.sh"
# shellcheck source=tools/real-cluster.sh
. "$root/tools/real-cluster.sh"
setup_node
setup_typescript

# In CI, a part that cannot run is a failure.
cannot() {
  say "$1"
  if [ -n "${CI:-}" ]; then exit 1; else exit 75; fi
}

# Other programs capture and read what `fairlead trace` and `fairlead capture` show.
set_up_capture() {
  (setup_debian tcpdump=tcpdump tshark=tshark) || say "the comparisons with tcpdump and tshark are skipped"
}

pods=(crun=crun conmon=conmon catatonit=catatonit iptables=iptables nft=nftables ip=iproute2 conntrack=conntrack)

case ${1:-} in
  unit)
    # The tests that compare our DNS messages with what dig and kdig read are skipped where these are missing.
    [ "$(id -u)" -ne 0 ] || setup_debian dig=bind9-dnsutils kdig=knot-dnsutils >&2
    # In CI the monitoring rules are checked with their own program, too.
    [ -z "${CI:-}" ] || sh tools/promtool.sh >/dev/null || say "the tests with promtool are skipped"
    ;;
  built)
    # Three minutes of processor, which the other parts leave over.
    if [ -z "${HELM:-}" ]; then
      HELM=$(nice -n 19 sh tools/helm.sh) || { say "helm could not be built"; exit 75; }
    fi
    echo "HELM=$HELM"
    ;;
  netns)
    setup_debian "${pods[@]}" curl=curl dig=bind9-dnsutils /usr/lib/cni/portmap=containernetworking-plugins
    # The page of `fairlead ui` is tested in a real browser.
    (setup_debian chromium=chromium) || say "the tests of the page are skipped"
    # What clusters of an ordinary user need for external networks, and for users of more than one id.
    (setup_debian slirp4netns=slirp4netns pasta=passt) || say "tests of the egress of an ordinary user are skipped"
    (setup_debian newuidmap=uidmap) || say "the test of an ordinary user with many ids is skipped"
    (setup_debian haproxy=haproxy h2load=nghttp2-client) || say "the tests of gateways are skipped"
    set_up_capture
    setup_bundle >&2
    # Built here, since packet tests reach no module proxy; two minutes of processor. Without --full, one kubectl has the
    # session of tests/kubectl-session.netns.test.ts: that of KUBEBUILDER_ASSETS or of the machine, if there is one.
    if [ "${FAIRLEAD_TEST_FULL:-}" = 1 ] || ! { [ -n "${KUBEBUILDER_ASSETS:-}" ] || command -v kubectl; } >/dev/null; then
      sh tools/kubectl/build.sh 1.33 >/dev/null || say "the tests with kubectl 1.33 are skipped"
    fi
    ;;
  vm)
    setup_debian "${pods[@]}" ipvsadm=ipvsadm ipset=ipset
    set_up_capture
    setup_bundle >&2
    # A processor with AMX: see tests/vm/uml-xstate.c.
    ! grep -qw amx_tile /proc/cpuinfo || setup_debian cc=gcc gencat=libc6-dev
    reason=$(tools/testing/in-virtual-machine true 2>&1) || cannot "the virtual machine does not start: $(tail -n 1 <<<"$reason")"
    ;;
  real)
    # Without a folder that makes a cluster there are no such tests, in CI neither.
    reason=$(real_cluster_missing) || { say "$reason"; exit 75; }
    setup_debian catatonit=catatonit iptables=iptables nft=nftables ip=iproute2 conntrack=conntrack openssl=openssl python3=python3
    setup_bundle >&2
    reason=$(setup_real_cluster 2>&1) || cannot "a real cluster cannot be made: $(tail -n 1 <<<"$reason")"
    echo "FAIRLEAD_IMAGE=$root/dist/image"
    ;;
  chaos)
    setup_debian "${pods[@]}"
    setup_bundle >&2
    ;;
  *)
    say "usage: set-up.sh unit|built|netns|vm|real|chaos"
    exit 2
    ;;
esac
