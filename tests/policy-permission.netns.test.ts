import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { parseAllDocuments } from 'yaml';
import type { KubeObject } from '../src/kube/types.ts';
import { eventually } from '../src/lib/testing/eventually.ts';
import { LAUNCHER } from './testing/cluster.ts';
import { CLUSTER_POLICY_DEFINITIONS } from './testing/cluster-policy-definitions.ts';
import { startTakeOverScene, type TakeOverScene } from './testing/take-over.ts';

/** An agent whose role lacks policies enforces none, says so, and enforces them as soon as the role has them. */

const DENY_EGRESS = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: near}
spec: {podSelector: {matchLabels: {app: near}}, policyTypes: [Egress], egress: []}
`;

const DENY_EGRESS_OF_CLUSTER = `
apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: near}
spec:
  tier: Admin
  priority: 1
  subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: near}}}}
  egress: [{name: none, action: Deny, to: [{networks: [0.0.0.0/0]}]}]
`;

const ROLE = 'fairlead-policy';

let scene: TakeOverScene;
before(async () => {
  scene = await startTakeOverScene();
  await scene.createClient();
  await scene.killAgent();
});
after(() => scene?.cluster.down());

const apply = (items: readonly KubeObject[]) =>
  scene.cluster.apply(JSON.stringify({ apiVersion: 'v1', kind: 'List', items }));

/** Writes a configuration with which an agent is the installation's ServiceAccount. Returns the file. */
async function accountConfiguration(): Promise<string> {
  const { cluster, kubeconfig, policyOnly } = scene;
  const token = await cluster.ask('create', 'token', 'fairlead', '-n', 'kube-system');
  const own = JSON.parse(readFileSync(kubeconfig, 'utf8')) as { users: readonly { name: string }[] };
  const users = own.users.map(({ name }) => ({ name, user: { token } }));
  const files = { kubeconfig: `${kubeconfig}.account`, configuration: `${policyOnly}.account` };
  writeFileSync(files.kubeconfig, JSON.stringify({ ...own, users }), { mode: 0o600 });
  const agent = JSON.parse(readFileSync(policyOnly, 'utf8')) as object;
  writeFileSync(files.configuration, JSON.stringify({ ...agent, kubeconfig: files.kubeconfig }));
  return files.configuration;
}

test('an agent whose role lacks policies says so, and enforces them as soon as it has the role', async () => {
  const { cluster, isAnswered } = scene;
  const words = ['manifests', '--for', 'policy', '--api-server', 'https://127.0.0.1'];
  const manifests = execFileSync(LAUNCHER, words, { encoding: 'utf8' });
  const objects = parseAllDocuments(manifests).map((one) => one.toJS() as KubeObject);
  const installed = objects.filter(({ kind }) => kind !== 'DaemonSet');
  const isRole = ({ kind, metadata }: KubeObject) => kind === 'ClusterRoleBinding' && metadata?.name === ROLE;
  await apply(installed.filter((one) => !isRole(one)));
  await cluster.apply(CLUSTER_POLICY_DEFINITIONS);
  await cluster.apply(DENY_EGRESS);
  const configuration = await accountConfiguration();
  await scene.withAgent(configuration, async (printed) => {
    await eventually(printed, (text) =>
      /network policies are not enforced: .*forbidden.*allow the agent/i.test(text),
    );
    await eventually(printed, (text) =>
      /policies of policy\.networking\.k8s\.io are not enforced/.test(text),
    );
    assert.ok(await isAnswered(), 'no policy is enforced yet');
    await apply(installed.filter(isRole));
    await eventually(isAnswered, (answered) => !answered);
    await cluster.ask('delete', 'networkpolicy', 'near');
    await eventually(isAnswered, Boolean);
    await cluster.apply(DENY_EGRESS_OF_CLUSTER);
    await eventually(isAnswered, (answered) => !answered);
  });
});
