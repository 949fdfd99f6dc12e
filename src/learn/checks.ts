import { isReady } from '../controllers/pods.ts';
import type { Deployment, KubeObject, Pod, Service } from '../kube/types.ts';
import { EJECTED_BY_FAILOVER } from '../observe/explain-forwarding.ts';
import type { Cause, ExplainVerdict } from '../observe/explanation.ts';
import { type Check, LEARN_NAMESPACE, type LessonView, type Question } from './lesson.ts';

/** The checks of steps: pure functions of the cluster as the view shows it. */

/** Returns the pods with this label "app", by name. */
export const podsOf = ({ pods }: LessonView, app: string): Pod[] =>
  pods
    .filter(({ metadata }) => (metadata?.labels as Record<string, string> | undefined)?.['app'] === app)
    .sort((a, b) => ((a.metadata?.name ?? '') < (b.metadata?.name ?? '') ? -1 : 1));

const findByName = <T extends { metadata?: { name?: string } }>(
  objects: readonly T[],
  wanted: string,
): T | undefined => objects.find(({ metadata }) => metadata?.name === wanted);

const simple = (missing: Check['missing']): Check => ({ asks: [], missing });

/** All of several checks; the first that is not met says what is missing. */
export const all = (...checks: readonly Check[]): Check => ({
  asks: checks.flatMap(({ asks }) => asks),
  missing(view) {
    for (const check of checks) {
      const missing = check.missing(view);
      if (missing !== null) return missing;
    }
    return null;
  },
});

/** `count` pods with the label "app" are ready, and no others are left. */
export const podsReady = (app: string, count: number): Check =>
  simple((view) => {
    const pods = podsOf(view, app);
    const ready = pods.filter(isReady).length;
    return ready === count && pods.length === count
      ? null
      : `${ready} of ${count} pods with the label app=${app} are ready`;
  });

/** The container of a pod was started again, and is ready. */
export const restarted = (app: string): Check =>
  simple((view) => {
    const [pod] = podsOf(view, app);
    if (!pod) return `there is no pod with the label app=${app}`;
    const restarts = pod.status?.containerStatuses?.[0]?.restartCount ?? 0;
    if (restarts === 0) return `the container of pod ${pod.metadata?.name} has not been restarted`;
    return isReady(pod) ? null : `pod ${pod.metadata?.name} is not ready yet`;
  });

/** An object of a kind meets a condition; `listOf`: where the view has the kind. */
const objectIs =
  <T extends KubeObject>(kind: string, listOf: (view: LessonView) => readonly T[]) =>
  (name: string, what: string, is: (object: T) => boolean): Check =>
    simple((view) => {
      const object = findByName(listOf(view), name);
      if (object === undefined) return `there is no ${kind} ${name}`;
      return is(object) ? null : `${kind} ${name}: ${what}`;
    });

export const podIs = objectIs<Pod>('pod', ({ pods }) => pods);
export const serviceIs = objectIs<Service>('Service', ({ services }) => services);
export const deploymentIs = objectIs<Deployment>('Deployment', ({ deployments }) => deployments);

export const policyExists = (name: string): Check =>
  simple(({ policies }) => (findByName(policies, name) ? null : `there is no NetworkPolicy ${name}`));

/** Every node is in a mode. */
export const everyNodeIn = (mode: string): Check =>
  simple(({ nodes }) => {
    const other = nodes.find((node) => node.mode !== mode);
    return other ? `${other.name} is in ${other.mode} mode` : null;
  });

/** At least one pod of LEARN_NAMESPACE is silent. */
export const podSilenced = (app: string): Check =>
  simple((view) => (silentPods(view, app).length > 0 ? null : `no pod with the label app=${app} is silent`));

/** No pod with the label "app" is silent. */
export const noPodSilenced = (app: string): Check =>
  simple((view) => (silentPods(view, app).length === 0 ? null : 'the pod is still silent'));

const silentPods = (view: LessonView, app: string): string[] => {
  const names = podsOf(view, app).map(({ metadata }) => `${LEARN_NAMESPACE}/${metadata?.name}`);
  return view.faults.flatMap(({ kind, target }) =>
    kind === 'silent' && names.includes(target) ? target : [],
  );
};

/** `explain` gives a verdict. */
export const explainedAs = (question: Question, verdict: ExplainVerdict): Check => ({
  asks: [question],
  missing(view) {
    const explanation = view.explained(question);
    const { from, to } = question;
    if (explanation === null) return `explain ${from} ${to} fails`;
    const cause: Cause | undefined = explanation.causes[0];
    return explanation.verdict === verdict
      ? null
      : `explain ${from} ${to} says ${explanation.verdict}${cause ? `: ${cause.text}` : ''}`;
  },
});

/** A packet would be delivered. */
export const reaches = (from: string, to: string): Check => explainedAs({ from, to }, 'delivered');

/** Failover has taken an endpoint of a Service out of use on the client's node. */
export const ejected = (question: Question): Check => ({
  asks: [question],
  missing(view) {
    const steps = view.explained(question)?.steps ?? [];
    return steps.some(({ subject, text }) => subject === 'endpoints' && text.includes(EJECTED_BY_FAILOVER))
      ? null
      : 'every endpoint is still in use: send more requests';
  },
});
