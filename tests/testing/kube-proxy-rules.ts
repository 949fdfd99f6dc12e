import assert from 'node:assert/strict';
import { eventually } from '../../src/lib/testing/eventually.ts';
import type { ModeComparison, ModeSection } from '../../src/modes/comparison.ts';
import { kubeProxyIn } from './kube-proxy-origin.ts';
import type { TakeOverScene } from './take-over.ts';

/** The networks of pods by which the agent, and kube-proxy in the tests, recognize them. */
const POD_SOURCE = /(-s )10\.244\.[0-9.]+\/(?:16|24)(?= )/;
/** Versions of iptables differ in when they quote a comment. */
const plain = (line: string): string => line.replaceAll('"', '').replace(POD_SOURCE, '$1PODS').trim();

/** Asserts that the real kube-proxy writes what `explain SERVICE --modes` says that it would. */
export async function compareWithKubeProxy(scene: TakeOverScene, service: string): Promise<void> {
  const { cluster, onNode } = scene;
  const words = [`svc/${service}`, '--modes', '--node', 'node-1', '-o', 'json'];
  const compared = await cluster.fairlead('explain', ...words);
  assert.equal(compared.status, 0, compared.error);
  const { modes } = JSON.parse(compared.out) as ModeComparison;
  const sections = modes.find(({ mode }) => mode === 'iptables')?.kubeProxy ?? [];
  assert.ok(sections.length >= 2);
  await scene.killAgent();
  assert.equal((await scene.fairleadOnNode('cleanup', '--config', scene.proxyOnly)).status, 0);
  const kubeProxy = await kubeProxyIn('iptables').start(scene, [await scene.clusterIP(service)]);
  try {
    for (const { command, lines } of sections.filter(({ command }) => command.startsWith('iptables-save')))
      await eventually(
        () =>
          onNode(...command.split(' '))
            .split('\n')
            .map(plain),
        (listed) => lines.every((line) => listed.includes(plain(line))),
      ).catch((error: unknown) => {
        throw new Error(`${error}\n${missingText(sections, onNode)}`);
      });
    const own = namesIn(sections);
    const listed = onNode('iptables-save', '-t', 'nat')
      .split('\n')
      .filter((line) => own.has(line.split(' ')[1] ?? ''));
    const written = sections.flatMap(({ lines }) => lines.map(plain));
    assert.deepEqual(
      listed.map(plain).filter((line) => !written.includes(line)),
      [],
      'rules that are not rendered',
    );
  } finally {
    await kubeProxy.stop();
    await scene.startAgent();
  }
}

/** The chains that only this Service has. */
const namesIn = (sections: readonly ModeSection[]): Set<string> =>
  new Set(
    sections.flatMap(({ lines }) =>
      lines.flatMap((line) => /^-A (KUBE-(?:SVC|SVL|EXT|FW|SEP)-\S+)/.exec(line)?.[1] ?? []),
    ),
  );

function missingText(sections: readonly ModeSection[], onNode: TakeOverScene['onNode']): string {
  const listed = new Set(onNode('iptables-save').split('\n').map(plain));
  return sections
    .flatMap(({ lines }) => lines)
    .filter((line) => !listed.has(plain(line)))
    .map((line) => `not written: ${line}`)
    .join('\n');
}
