import { podsOf } from './checks.ts';
import type { LessonView } from './lesson.ts';

/** Returns the value of a word in braces; null: the object does not exist (yet). */
type Reader = (view: LessonView, name: string, index: number) => string | null;

const podAt: (view: LessonView, app: string, index: number) => ReturnType<typeof podsOf>[number] | undefined =
  (view, app, index) => podsOf(view, app)[index];

const serviceNamed = ({ services }: LessonView, name: string) =>
  services.find(({ metadata }) => metadata?.name === name);

const READERS: Readonly<Record<string, Reader>> = {
  /** The name of a pod with the label "app": {pod team}, {pod team 2}. */
  pod: (view, app, index) => podAt(view, app, index)?.metadata?.name ?? null,
  address: (view, app, index) => podAt(view, app, index)?.status?.podIP ?? null,
  /** The place of the node of a pod, as `fairlead exec` takes it. */
  node: (view, app, index) => {
    const node = podAt(view, app, index)?.spec?.nodeName;
    return node === undefined ? null : `node/${node}`;
  },
  'node-address': (view) => view.nodes[0]?.address ?? null,
  'cluster-ip': (view, name) => serviceNamed(view, name)?.spec?.clusterIP ?? null,
  'node-port': (view, name) => serviceNamed(view, name)?.spec?.ports?.[0]?.nodePort?.toString() ?? null,
  ingress: (view, name) => serviceNamed(view, name)?.status?.loadBalancer?.ingress?.[0]?.ip ?? null,
};

/**
 * Names, addresses and ports. The command is for a shell, of the learner or of the page, and others write what fills it: pods'
 * controllers their names, kubelets and load balancers the addresses of a status.
 */
const PLAIN = /^[A-Za-z0-9][A-Za-z0-9.:/-]{0,252}$|^:[A-Fa-f0-9:.]{1,45}$/;

const WORD = /\{([a-z-]+)(?: ([a-z-]+))?(?: ([0-9]+))?\}/g;

/**
 * Replaces the words in braces of a command by what the cluster has now. A word whose object does not exist yet becomes a
 * placeholder in capitals, for the learner to replace.
 */
export function fillIn(command: string, view: LessonView): string {
  return command.replace(WORD, (word, kind: string, name = '', number = '1') => {
    const read = READERS[kind];
    if (!read) return word;
    const value = read(view, name, Number(number) - 1);
    return value !== null && PLAIN.test(value) ? value : kind.replaceAll('-', '_').toUpperCase();
  });
}

/** Returns the words in braces that `fillIn` does not know. */
export const unknownWords = (command: string): string[] =>
  [...command.matchAll(WORD)].flatMap(([word, kind = '']) => (kind in READERS ? [] : [word]));
