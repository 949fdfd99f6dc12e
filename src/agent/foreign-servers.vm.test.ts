import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { afterEach, beforeEach, describe, test } from 'node:test';
import { createIpvs } from '../dataplane/ipvs/ipvs.ts';
import { parseCidr } from '../lib/address.ts';
import { systemClock } from '../lib/clock.ts';
import { silentLogger } from '../lib/log.ts';
import { eventually } from '../lib/testing/eventually.ts';
import { adoptServers, takeOver } from './kube-proxy-state.ts';
import { bpfPlace, findOtherProxies, takeOverFromOthers } from './other-proxies.ts';

// Runs in a virtual machine, whose network is the node here. What the other proxies leave is made with the tools that
// show it; tests/kube-proxy-ipvs.matrix.vm.test.ts has the real kube-proxy.
const NODE = '192.168.77.1';
const excluded = [parseCidr('192.0.2.0/24')].flatMap((one) => one ?? []);

const run = (line: string) => execFileSync('sh', ['-c', line], { encoding: 'utf8', stdio: 'pipe' });
const servers = () =>
  run('ipvsadm -Sn')
    .split('\n')
    .flatMap((line) => /^-A (-[tu] \S+)/.exec(line)?.[1] ?? [])
    .sort();
const devices = () => run('ip -brief link');
const addresses = (device: string) =>
  [...run(`ip -4 -oneline address show dev ${device}`).matchAll(/inet ([0-9.]+)/g)]
    .map(([, one]) => one)
    .sort();

/** An address of the device with a server, a second one without, one that is excluded, and a node port. */
const SERVED = (device: string) => `
  ip link add ${device} type dummy
  ip address add 10.96.0.88/32 dev ${device}
  ip address add 10.96.0.89/32 dev ${device}
  ip address add 192.0.2.1/32 dev ${device}
  ipvsadm -A -t 10.96.0.88:80 -s rr
  ipvsadm -a -t 10.96.0.88:80 -r 10.244.0.5:8080 -m
  ipvsadm -A -t 192.0.2.1:80 -s rr
  ipvsadm -A -t ${NODE}:30077 -s rr
  ipvsadm -A -u ${NODE}:30078 -s rr
`;
/** A server of another program on an address of the node. */
const FOREIGN = `ipvsadm -A -t ${NODE}:8443 -s rr`;

const KUBE_PROXY = `
  ${SERVED('kube-ipvs0')}
  ipset create KUBE-NODE-PORT-TCP bitmap:port range 0-65535
  ipset add KUBE-NODE-PORT-TCP 30077
  ipset create KUBE-NODE-PORT-UDP bitmap:port range 0-65535
  ipset add KUBE-NODE-PORT-UDP 30078
  ipset create KUBE-CLUSTER-IP hash:ip,port
  ipset create KUBE-OTHERS hash:ip
  iptables -t nat -N KUBE-SERVICES
  iptables -t nat -N KUBE-NODE-PORT
  iptables -t nat -A PREROUTING -j KUBE-SERVICES
  iptables -t nat -A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODE-PORT
  iptables -t nat -A KUBE-NODE-PORT -p tcp -m set --match-set KUBE-NODE-PORT-TCP dst -j RETURN
  iptables -N KUBE-IPVS-FILTER
  iptables -A INPUT -m comment --comment "kubernetes ipvs access filter" -j KUBE-IPVS-FILTER
  iptables -A KUBE-IPVS-FILTER -m set --match-set KUBE-CLUSTER-IP dst,dst -j RETURN
  iptables -N OTHERS
  iptables -A INPUT -m comment --comment "of -j KUBE-IPVS-FILTER" -j OTHERS
`;

const KUBE_ROUTER = `
  ${SERVED('kube-dummy-if')}
  ip link add kube-bridge type bridge
  ipset create kube-router-svip hash:ip
  ipset create kube-router-svip-prt hash:ip,port
  ipset add kube-router-svip-prt ${NODE},tcp:30077
  ipset add kube-router-svip-prt ${NODE},udp:30078
  iptables -N KUBE-ROUTER-SERVICES
  iptables -A INPUT -m set --match-set kube-router-svip dst -j KUBE-ROUTER-SERVICES
  iptables -A KUBE-ROUTER-SERVICES -m set --match-set kube-router-svip-prt dst,dst -j ACCEPT
  iptables -N KUBE-ROUTER-FORWARD
  iptables -A FORWARD -j KUBE-ROUTER-FORWARD
  iptables -t nat -A POSTROUTING ! -s 10.244.0.0/16 -m ipvs --vdir ORIGINAL --vmethod MASQ -j MASQUERADE
`;

const CLEAN = `
  ipvsadm -C
  for d in kube-ipvs0 kube-dummy-if kube-bridge fairlead-ipvs uplink0; do ip link delete $d 2>/dev/null; done
  for t in nat filter mangle; do iptables -t $t -F; iptables -t $t -X; done
  nft flush ruleset
  ipset destroy
  true
`;

// They remove all rules, and must not do so on the machine itself.
const skip = existsSync('/run/vm/guest') ? false : 'not in the virtual machine of ./test vm';

describe('virtual servers of another proxy', { skip }, () => {
  beforeEach(() => {
    run(CLEAN);
    run(`ip link add uplink0 type dummy && ip address add ${NODE}/24 dev uplink0 && ip link set uplink0 up`);
    run(FOREIGN);
  });
  afterEach(() => {
    run(CLEAN);
  });

  /** The servers that remain with an excluded network, and no others. */
  function assertRemains(device: string): void {
    assert.deepEqual(servers(), ['-t 192.0.2.1:80', `-t ${NODE}:8443`]);
    assert.deepEqual(addresses(device), ['192.0.2.1']);
  }

  test('of kube-proxy: removed with its chains and ipsets, but for excluded networks and other programs', async () => {
    run(KUBE_PROXY);
    const programmed = { mode: 'nftables', families: ['ipv4'], excluded } as const;
    assert.deepEqual(await takeOver(programmed, systemClock, silentLogger), ['iptables (nft)', 'ipvs']);
    // The addresses are drained at the next check.
    await eventually(devices, (text) => !text.includes('fairlead-ipvs'));
    assertRemains('kube-ipvs0');
    assert.equal(run('ipset list -n').trim(), 'KUBE-OTHERS');
    const rules = run('iptables-save');
    assert.doesNotMatch(rules, /:KUBE/);
    assert.match(rules, /-A INPUT .*"of -j KUBE-IPVS-FILTER" -j OTHERS/);
  });

  test('of kube-proxy, without excluded networks: its device is removed', async () => {
    run(KUBE_PROXY);
    await takeOver({ mode: 'nftables', families: ['ipv4'], excluded: [] }, systemClock, silentLogger);
    await eventually(devices, (text) => !/fairlead-ipvs|kube-ipvs0/.test(text));
    assert.deepEqual(servers(), [`-t ${NODE}:8443`]);
  });

  test('of kube-proxy, before our IPVS mode starts: they are its own, and only excluded ones are not', async () => {
    run(KUBE_PROXY);
    await adoptServers(excluded, silentLogger);
    assert.deepEqual(addresses('fairlead-ipvs'), ['10.96.0.88', '10.96.0.89']);
    assert.deepEqual(addresses('kube-ipvs0'), ['192.0.2.1']);
    assert.equal(servers().length, 5, 'none is removed');
    const ipvs = createIpvs({ families: ['ipv4'] });
    try {
      await ipvs.remove();
    } finally {
      await ipvs.close();
    }
    assert.deepEqual(servers(), [
      '-t 192.0.2.1:80',
      `-t ${NODE}:30077`,
      `-t ${NODE}:8443`,
      `-u ${NODE}:30078`,
    ]);
  });

  test('of kube-router: removed with the chains and rules for Services; its pod network and policies stay', async () => {
    run(KUBE_ROUTER);
    const place = { ...bpfPlace(null), group: null };
    const [removed = '', ...more] = await takeOverFromOthers(
      { mode: 'nftables', place, excluded },
      systemClock,
      silentLogger,
    );
    assert.deepEqual(more, []);
    assert.match(removed, /^kube-router: virtual servers of kube-dummy-if; chains KUBE-ROUTER-SERVICES$/);
    await eventually(devices, (text) => !text.includes('fairlead-ipvs'));
    assertRemains('kube-dummy-if');
    assert.equal(run('ipset list -n').trim(), '');
    const rules = run('iptables-save');
    assert.doesNotMatch(rules, /KUBE-ROUTER-SERVICES|-m ipvs/);
    assert.match(rules, /-A FORWARD -j KUBE-ROUTER-FORWARD/);
    assert.match(devices(), /kube-bridge/);
    assert.deepEqual(await findOtherProxies(place, excluded), [], 'nothing is left for the next start');
  });
});
