import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { FlowSource } from '../cluster/flow-reader.ts';
import type { ClusterState } from '../cluster/state.ts';
import { systemClock } from '../lib/clock.ts';
import { eventually } from '../lib/testing/eventually.ts';
import { createFlowFeed } from './flow-feed.ts';

/** A cluster of two nodes: the agent of the second does not run. */
function clusterOf(lines: readonly string[], opened: string[]): FlowSource {
  return {
    report: {
      state: { name: 'test', nodes: [{ name: 'node-1' }, { name: 'node-2' }] } as unknown as ClusterState,
    },
    async flows(node, _wanted, signal) {
      opened.push(node);
      if (node === 'node-2') throw new Error('connection refused');
      return (async function* () {
        for (const line of lines) yield Buffer.from(`${line}\n`);
        await new Promise((resolve) => signal.addEventListener('abort', resolve));
      })();
    },
  };
}

const notice = (text: string) => JSON.stringify({ type: 'notice', text });
const PACKETS = 'too many packets: from now on 1 in 2 is shown';
const SERVICES = 'too many connections: from now on 1 in 2 of those through Services is shown';

const rows = [
  { what: 'both samplings are shown', lines: [PACKETS, SERVICES], wanted: [PACKETS, SERVICES] },
  {
    what: 'the end of one sampling leaves the other',
    lines: [PACKETS, SERVICES, 'all connections and DNS lookups are shown again'],
    wanted: [SERVICES],
  },
  {
    what: 'a stronger sampling replaces the previous one',
    lines: [PACKETS, PACKETS.replace('2', '4')],
    wanted: [PACKETS.replace('2', '4')],
  },
];
for (const { what, lines, wanted } of rows) {
  test(`notices of nodes: ${what}; a node that cannot be read is named`, async () => {
    const opened: string[] = [];
    const notices = new Map<string, string>();
    const source = clusterOf(lines.map(notice), opened);
    const feed = createFlowFeed({
      cluster: async () => source,
      counter: { add: () => assert.fail('there are no flows'), take: () => assert.fail('not called') },
      clock: systemClock,
      onNotice(node, subject, text) {
        if (text === null) notices.delete(`${node} ${subject}`);
        else notices.set(`${node} ${subject}`, text);
      },
    });
    assert.deepEqual(opened, [], 'nothing is read without a page');
    const first = feed.open();
    const second = feed.open();
    await eventually(
      async () => [
        [...notices].filter(([key]) => key.startsWith('node-1')).map(([, text]) => text),
        notices.has('node-2 reading'),
      ],
      ([texts, isNamed]) => JSON.stringify(texts) === JSON.stringify(wanted) && isNamed === true,
    );
    first.close();
    first.close();
    assert.equal(opened.filter((node) => node === 'node-1').length, 1, 'pages share the flows');
    second.close();
  });
}
