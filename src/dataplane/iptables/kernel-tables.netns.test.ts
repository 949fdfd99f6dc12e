import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, type TestContext, test } from 'node:test';
import { openIpsets } from '../../kernel/ipset.ts';
import { createNetns, removeNetns } from '../../kernel/netns.ts';
import { COUNTER_BYTES, openXtables, REPLACE } from '../../kernel/xtables/connection.ts';
import { LAYOUT } from '../../kernel/xtables/layout.ts';
import type { IPFamily } from '../../lib/address.ts';
import { createServiceTable } from '../../service/service-table.ts';
import { applyEdit, randomCluster } from '../../service/testing/random-cluster.ts';
import { HOOKS } from './base-chains.ts';
import { TABLES, type Table } from './chain-names.ts';
import { openKernelTables } from './kernel-tables.ts';
import { NOTHING, type TableInput } from './restore.ts';
import { createRuleset, type Ruleset } from './ruleset.ts';
import { type TableInputs, type Tables, toolTables } from './tables.ts';

const FAMILIES: readonly IPFamily[] = ['ipv4', 'ipv6'];
const OPTIONS = { dropInvalid: true, affinity: true };
/** Random clusters: one of each family, with 25 rounds of changes; the full product has more. */
const SEEDS: Readonly<Record<IPFamily, readonly number[]>> =
  process.env['FAIRLEAD_TEST_FULL'] === '1'
    ? { ipv4: [31, 32, 33], ipv6: [31, 32, 33] }
    : { ipv4: [31], ipv6: [32] };
const ROUNDS = 25;
const EDITS = 4;

/** Contents of other programs in the tables: chains, matches and targets that this mode does not know, counters. */
const FOREIGN = `*nat
:PREROUTING ACCEPT [11:222]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [3:180]
:POSTROUTING ACCEPT [0:0]
:DOCKER - [0:0]
:KUBE-KUBELET-CANARY - [0:0]
:ZULU - [0:0]
[7:420] -A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
[1:60] -A PREROUTING -p tcp -m multiport --dports 80,443 -m limit --limit 5/sec
[9:99] -A OUTPUT -m owner --uid-owner 0 -g ZULU
[2:120] -A DOCKER -i eth9 -j RETURN
[4:240] -A DOCKER -p tcp -m tcp --dport 8080 -j REDIRECT --to-ports 80
[5:300] -A ZULU -m statistic --mode nth --every 3 --packet 1 -j DOCKER
COMMIT
*filter
:INPUT ACCEPT [100:9000]
:FORWARD DROP [1:1]
:OUTPUT ACCEPT [0:0]
:A-FIRST - [0:0]
[21:2100] -A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j A-FIRST
[22:2200] -A FORWARD -o eth7 -m comment --comment plain -j LOG --log-prefix "seen: "
[23:2300] -A A-FIRST -m hashlimit --hashlimit-upto 10/sec --hashlimit-burst 5 --hashlimit-name hl -j ACCEPT
[24:2400] -A A-FIRST
COMMIT
`;

/** Later changes by other programs, as arguments of iptables. */
const FOREIGN_CHANGES: readonly string[] = [
  '-t nat -N MIKE',
  '-t nat -I PREROUTING 1 -p udp -m length --length 10:20 -j MIKE',
  '-t filter -N KILO',
  '-t filter -I INPUT 2 -m mark --mark 0x1 -j KILO',
  '-t nat -A MIKE -m string --algo bm --string x -j DOCKER',
  '-t nat -D PREROUTING 1',
  '-t filter -A KILO -m limit --limit 1/min -j LOG',
  '-t nat -F MIKE',
  '-t nat -X MIKE',
];

/** Rules like those of this mode, with other options: in its own chains they are drift. */
const SIMILAR: readonly string[] = [
  '-p tcp -m tcp --dport 80 --tcp-flags SYN,ACK SYN -j RETURN',
  '-p tcp -m tcp --sport 5 --dport 80 -j RETURN',
  '-p tcp -m tcp ! --dport 80 -j RETURN',
  '-p udp -m udp --sport 5 -j RETURN',
  '-p sctp -m sctp --dport 80 --chunk-types any DATA -j RETURN',
  '-p sctp -m sctp --sport 80 -j RETURN',
  '! -p tcp -j RETURN',
  '-p 89 -j RETURN',
  '-i eth0 -o eth1 -j RETURN',
  '-m conntrack --ctstate NEW --ctproto 6 -j RETURN',
  '-m conntrack --ctstatus ASSURED -j RETURN',
  '-m conntrack --ctstate DNAT --ctorigdst FIRST -j RETURN',
  '-m conntrack --ctstate DNAT --ctorigdst FIRST/8 -j RETURN',
  '-m conntrack --ctstate DNAT ! --ctorigdst FIRST/8 -j RETURN',
  '-m conntrack --ctstate UNTRACKED,SNAT -j RETURN',
  '-m statistic --mode nth --every 2 --packet 0 -j RETURN',
  '-m statistic --mode random ! --probability 0.5 -j RETURN',
  '-m addrtype --src-type LOCAL --dst-type LOCAL -j RETURN',
  '-m addrtype ! --dst-type LOCAL -j RETURN',
  '-m addrtype --dst-type MULTICAST -j RETURN',
  '-m addrtype --dst-type LOCAL --limit-iface-in -j RETURN',
  '-m mark --mark 0x4000 -j RETURN',
  '-m set ! --match-set KUBE-AFF-T src -j RETURN',
  '-m set --match-set KUBE-AFF-T dst -j RETURN',
  '-m set --match-set KUBE-AFF-T src --return-nomatch -j RETURN',
  '-j SET --add-set KUBE-AFF-T src',
  '-j SET --add-set KUBE-AFF-T dst --exist',
  '-j SET --add-set KUBE-AFF-T src --exist --timeout 5',
  '-j SET --del-set KUBE-AFF-T src',
  '-p tcp -j DNAT --to-destination FIRST-SECOND',
  '-p tcp -j DNAT --to-destination FIRST',
  '-p tcp -j DNAT --to-destination [FIRST]:80-90',
  '-p tcp -j DNAT --to-destination [FIRST]:80 --random',
  '-p tcp -j DNAT --to-destination [FIRST]:80 --persistent',
  '-p tcp -j REDIRECT --to-ports 80',
  '-j MARK --set-xmark 0x1/0x1',
  '-j MARK --and-mark 0x1',
  `-m comment --comment it's -j RETURN`,
  '-m comment --comment plain -j RETURN',
  '-m comment --comment plain',
  '-s FIRST -d SECOND -j RETURN',
];

const installed = existsSync('/usr/sbin/iptables-legacy-restore');
describe('tables of iptables-legacy by the kernel interface', {
  skip: installed ? false : 'iptables-legacy is not installed',
}, () => {
  for (const family of FAMILIES) {
    for (const seed of SEEDS[family]) {
      test(`${family}, random cluster ${seed}: every table equals the one that iptables-legacy-restore writes, with foreign rules and their counters`, (t) =>
        compareWithProgram(t, family, seed));
    }
    test(`${family}: a rule that only the program knows is written and read by the program`, async (t) => {
      const reasons: string[] = [];
      const { tables } = open(t, family, (reason) => reasons.push(reason));
      const rule = '-m limit --limit 7/sec -j RETURN';
      await tables.write({
        nat: [{ ...NOTHING, written: new Map([['KUBE-SVC-X', [rule, '-j RETURN']]]) }],
        filter: [],
      });
      assert.equal(reasons.length, 1);
      assert.deepEqual((await tables.read()).nat.chains.get('KUBE-SVC-X'), [rule, '-j RETURN']);
      assert.deepEqual(
        reasons.map((reason) => reason.replace(/: .*/s, '')),
        [`writing ${family} nat`, `reading ${family} nat`],
      );
    });
    test(`${family}: rules with other options are read as iptables-save prints them`, async (t) => {
      const { tables, netns } = open(t, family, () => {});
      const program = toolTables({ family, variant: 'legacy', netns });
      createSets(netns, [{ name: 'KUBE-AFF-T', family, seconds: 60 }]);
      const chain = 'KUBE-SVC-X';
      run(netns, family, ['-t', 'nat', '-N', chain]);
      for (const rule of SIMILAR) {
        const [first, second] = family === 'ipv4' ? ['10.0.0.1', '10.0.0.9'] : ['fd00::1', 'fd00::9'];
        const text = (family === 'ipv4' ? rule.replace(/\[(\w+)\]/, '$1') : rule)
          .replaceAll('FIRST', first ?? '')
          .replaceAll('SECOND', second ?? '');
        run(netns, family, ['-t', 'nat', '-A', chain, ...text.split(' ')]);
        const [read, wanted] = [await tables.read(), await program.read()];
        const plain = (rules: readonly string[] = []) => rules.map((line) => line.replaceAll('"', ''));
        assert.deepEqual(plain(read.nat.chains.get(chain)), plain(wanted.nat.chains.get(chain)), text);
        run(netns, family, ['-t', 'nat', '-F', chain]);
      }
    });
    test(`${family}: a rule of another program that jumps to a chain of this mode is read`, async (t) => {
      const { tables, netns } = open(t, family, () => {});
      const chain = 'KUBE-SVC-X';
      await tables.write({ nat: [{ ...NOTHING, written: new Map([[chain, []]]) }], filter: [] });
      run(netns, family, ['-t', 'nat', '-A', 'OUTPUT', '-m', 'limit', '--limit', '1/min', '-j', chain]);
      const { nat } = await tables.read();
      assert.match(nat.builtin.get('OUTPUT')?.[0] ?? '', /^-m limit --limit 1\/min -j KUBE-SVC-X$/);
      await tables.write({
        nat: [
          {
            ...NOTHING,
            deleted: [chain],
            unhooked: [{ chain: 'OUTPUT', rule: nat.builtin.get('OUTPUT')?.[0] ?? '' }],
          },
        ],
        filter: [],
      });
      assert.doesNotMatch(save(netns, family), /KUBE-SVC-X/);
    });
  }

  test('tables of several megabytes: written new, then changed by more rules than fit in place', async (t) => {
    const { tables, netns } = open(t, 'ipv4');
    const { netns: other } = open(t, 'ipv4');
    const program = toolTables({ family: 'ipv4', variant: 'legacy', netns: other });
    // Of more bytes than usual: the memory for new rules has to grow.
    const rules = (chain: number) =>
      Array.from(
        { length: 100 },
        (_, i) => `-p sctp -m comment --comment "${chain} ${i}" -m sctp --dport ${1 + i} -j KUBE-SVC-0`,
      );
    const chains = (from: number, to: number) =>
      new Map(
        Array.from({ length: to - from }, (_, i): [string, string[]] => [
          `KUBE-SVC-${from + i}`,
          from + i === 0 ? [] : rules(from + i),
        ]),
      );
    for (const [from, to] of [
      [0, 60],
      [60, 120],
      [30, 90],
    ] as const) {
      const input = { nat: [{ ...NOTHING, written: chains(from, to) }], filter: [] };
      await tables.write(input);
      await program.write(input);
      assert.equal(save(netns, 'ipv4'), save(other, 'ipv4'), `${from} to ${to}`);
    }
    const input = { nat: [{ ...NOTHING, deleted: [...chains(1, 100).keys()] }], filter: [] };
    await tables.write(input);
    await program.write(input);
    assert.equal(save(netns, 'ipv4'), save(other, 'ipv4'), 'deleted');
  });

  test('a table that another program has changed since it was read is not replaced', async (t) => {
    const { netns } = open(t, 'ipv4');
    const connection = openXtables('ipv4', netns);
    t.after(() => connection.close());
    using raw = await connection.read('nat');
    run(netns, 'ipv4', ['-t', 'nat', '-A', 'OUTPUT', '-j', 'ACCEPT']);
    const { hookEntries, underflows, count, size, memory } = raw;
    assert.equal(await connection.replace(raw, { memory, hookEntries, underflows, count, size }), 'EAGAIN');
    assert.match(save(netns, 'ipv4'), /-A OUTPUT -j ACCEPT/);
  });

  test('a write waits for the lock that programs share, and names it if it stays locked', async (t) => {
    const folder = mkdtempSync(join(tmpdir(), 'flt-lock-'));
    process.env['XTABLES_LOCKFILE'] = join(folder, 'lock');
    t.after(() => {
      delete process.env['XTABLES_LOCKFILE'];
      rmSync(folder, { recursive: true });
    });
    const { tables, netns } = open(t, 'ipv4');
    const holding = async (seconds: number) => {
      const child = spawn('flock', [join(folder, 'lock'), 'sh', '-c', `echo locked; sleep ${seconds}`]);
      await new Promise((resolve) => child.stdout.once('data', resolve));
      return child;
    };
    const write = (chain: string) =>
      tables.write({ nat: [{ ...NOTHING, written: new Map([[chain, []]]) }], filter: [] });
    const released = await holding(0.5);
    await write('KUBE-SVC-A');
    assert.equal(released.exitCode, 0, 'the lock was released before');
    assert.match(save(netns, 'ipv4'), /KUBE-SVC-A/);
    const kept = await holding(30);
    await assert.rejects(write('KUBE-SVC-B'), /another program has held the iptables lock/);
    kept.kill();
    assert.doesNotMatch(save(netns, 'ipv4'), /KUBE-SVC-B/);
  });
});

/** Opens the tables of a new namespace; a use of the program fails the test unless it is expected. */
function open(
  t: TestContext,
  family: IPFamily,
  onToolUsed: (reason: string) => void = (reason) => assert.fail(`the program was used: ${reason}`),
): { readonly netns: string; readonly tables: Tables } {
  const netns = `flt-${randomBytes(3).toString('hex')}-xtables`;
  createNetns(netns);
  const tables = openKernelTables(
    { family, variant: 'legacy', netns },
    { onToolUsed, onLostCounters: assert.fail },
  );
  t.after(() => {
    tables.close();
    removeNetns(netns);
  });
  return { netns, tables };
}

async function compareWithProgram(t: TestContext, family: IPFamily, seed: number): Promise<void> {
  const kernel = open(t, family);
  const { netns: other } = open(t, family);
  const program = toolTables({ family, variant: 'legacy', netns: other });
  const both = [kernel.netns, other];
  for (const netns of both) run(netns, family, ['--counters'], FOREIGN);
  const cluster = randomCluster(seed);
  const table = createServiceTable(cluster.node);
  for (const object of cluster.services.values()) table.setService(object);
  for (const object of cluster.slices.values()) table.setSlice(object);
  let { map } = table.commit();
  let ruleset: Ruleset = createRuleset(map, family, OPTIONS);
  const present: Record<Table, Set<string>> = { nat: new Set(), filter: new Set() };

  const write = async (inputs: TableInputs, what: string) => {
    for (const name of TABLES) {
      for (const { written, deleted } of inputs[name]) {
        for (const chain of written.keys()) present[name].add(chain);
        for (const chain of deleted) present[name].delete(chain);
      }
    }
    await kernel.tables.write(inputs);
    await program.write(inputs);
    const [ours, theirs] = both.map((netns) => save(netns, family));
    assert.equal(withoutPolicies(ours ?? ''), withoutPolicies(theirs ?? ''), what);
    for (const name of TABLES) {
      assert.ok((await bytesOf(kernel.netns, family, name)).equals(await bytesOf(other, family, name)), what);
    }
    const [read, wanted] = [await kernel.tables.read(), await program.read()];
    for (const name of TABLES) {
      assert.deepEqual(read[name].chains, wanted[name].chains, what);
      const hooks = (rules: readonly string[]) => rules.filter((rule) => rule.includes('KUBE-'));
      for (const [chain, rules] of wanted[name].builtin)
        assert.deepEqual(hooks(read[name].builtin.get(chain) ?? []), hooks(rules), what);
    }
  };
  const everything = (hooked: boolean): TableInputs => {
    const rendered = ruleset.render();
    const input = (name: Table): TableInput[] => [
      {
        ...NOTHING,
        written: rendered[name],
        deleted: [...present[name]].filter((chain) => !rendered[name].has(chain)),
        hooks: hooked ? HOOKS.filter((hook) => hook.table === name) : [],
      },
    ];
    return { nat: input('nat'), filter: input('filter') };
  };

  for (const netns of both) createSets(netns, ruleset.sets.values());
  await write(everything(true), 'start');
  for (const policy of [':INPUT ACCEPT [100:9000]', ':FORWARD DROP [1:1]', ':PREROUTING ACCEPT [11:222]'])
    assert.ok(save(kernel.netns, family).includes(policy), policy);
  for (let round = 0; round < ROUNDS; round++) {
    const foreign = FOREIGN_CHANGES[round];
    if (foreign) for (const netns of both) run(netns, family, foreign.split(' '));
    for (let i = 0; i < EDITS; i++) applyEdit(table, cluster.edit());
    const commit = table.commit();
    map = commit.map;
    if (commit.change.node) {
      ruleset = createRuleset(map, family, OPTIONS);
      for (const netns of both) createSets(netns, ruleset.sets.values());
      await write(everything(false), `round ${round}, node`);
      continue;
    }
    const { written, deleted, setsAdded } = ruleset.apply(commit.change, map);
    for (const netns of both) createSets(netns, setsAdded);
    const input = (name: Table): TableInput[] => [
      { ...NOTHING, written: written[name], deleted: deleted[name] },
    ];
    await write({ nat: input('nat'), filter: input('filter') }, `round ${round}`);
  }
  const unhooked = (name: Table) => HOOKS.filter((hook) => hook.table === name);
  const removal = (name: Table) => [{ ...NOTHING, deleted: [...present[name]], unhooked: unhooked(name) }];
  await write({ nat: removal('nat'), filter: removal('filter') }, 'removal');
  assert.doesNotMatch(save(kernel.netns, family), /KUBE-(?!KUBELET)/);
}

function createSets(netns: string, sets: Parameters<ReturnType<typeof openIpsets>['create']>[0]): void {
  using ipsets = openIpsets(netns);
  ipsets.create(sets);
}

/** Returns the bytes of a table's entries, without the counters. */
async function bytesOf(netns: string, family: IPFamily, table: string): Promise<Buffer> {
  const connection = openXtables(family, netns);
  try {
    using raw = await connection.read(table);
    const { counters, next } = LAYOUT[family];
    const bytes = Buffer.from(raw.memory.bytes.subarray(REPLACE.bytes, REPLACE.bytes + raw.size));
    for (let at = 0; at < bytes.length; at += bytes.readUInt16LE(at + next))
      bytes.fill(0, at + counters, at + counters + COUNTER_BYTES);
    return bytes;
  } finally {
    connection.close();
  }
}

/** Removes the counters of policies, which iptables-legacy-restore --noflush sets to zero, unlike this code. */
const withoutPolicies = (text: string): string => text.replaceAll(/^(:[A-Z]+ [A-Z]+) .*$/gm, '$1');

/** Runs iptables, or iptables-restore if there is an input. */
function run(netns: string, family: IPFamily, args: readonly string[], input?: string): void {
  const command = `${family === 'ipv4' ? 'iptables' : 'ip6tables'}-legacy${input === undefined ? '' : '-restore'}`;
  execFileSync('ip', ['netns', 'exec', netns, command, '--wait', '5', ...args], { input });
}

/** Returns all tables with their counters, without the comments, which have the time; in a fixed order of tables. */
function save(netns: string, family: IPFamily): string {
  const command = `${family === 'ipv4' ? 'iptables' : 'ip6tables'}-legacy-save`;
  const parts = TABLES.map((table) =>
    execFileSync('ip', ['netns', 'exec', netns, command, '--counters', '-t', table], {
      maxBuffer: 1 << 28,
    }).toString('latin1'),
  );
  return parts.join('').replaceAll(/^#.*\n/gm, '');
}
