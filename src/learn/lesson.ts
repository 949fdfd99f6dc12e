import type { Fault } from '../cluster/faults.ts';
import type { Deployment, KubeObject, NetworkPolicy, Pod, Resource, Service } from '../kube/types.ts';
import type { Explanation } from '../observe/explanation.ts';

/** All objects of the lessons are in this namespace, and their progress is a ConfigMap there. */
export const LEARN_NAMESPACE = 'learn';

/** The part of the cluster that lessons look at: objects of LEARN_NAMESPACE, nodes and planted faults. */
export interface LessonView {
  /** Those that are not being deleted. */
  readonly pods: readonly Pod[];
  readonly deployments: readonly Deployment[];
  readonly services: readonly Service[];
  readonly policies: readonly NetworkPolicy[];
  readonly nodes: readonly { readonly name: string; readonly address: string; readonly mode: string }[];
  readonly faults: readonly Fault[];
  /** The answer to a question of the step's check; null: `explain` has failed. */
  explained(question: Question): Explanation | null;
}

/** A question to `explain`. */
export interface Question {
  readonly from: string;
  readonly to: string;
}

/** Whether the learner has done what a step asks for. */
export interface Check {
  /** The flow that the view must have explained. */
  readonly asks: readonly Question[];
  /** Returns what is still missing, in words; null: the step is done. */
  missing(view: LessonView): string | null;
}

/** The faults and objects that are made in the cluster when a step begins. */
export type Preparation =
  | { readonly kind: 'create'; readonly resource: Resource; readonly object: KubeObject }
  /** A strategic merge patch of an object in LEARN_NAMESPACE. */
  | { readonly kind: 'patch'; readonly resource: Resource; readonly name: string; readonly patch: object }
  /** `fairlead fault silent` for one pod with this label "app". */
  | { readonly kind: 'silence'; readonly app: string };

/** The question to the learner before typing. */
export interface Prediction {
  readonly question: string;
  readonly choices: readonly string[];
  /** The index of the right choice. */
  readonly answer: number;
  /** Why it is right, in words. */
  readonly why: string;
}

export interface Step {
  readonly title: string;
  /** Paragraphs in plain English. */
  readonly text: readonly string[];
  /**
   * The commands to type, in order: those of fairlead and kubectl. Words in braces are read from the cluster when the step is shown
   * (names.ts).
   */
  readonly commands: readonly string[];
  readonly predict?: Prediction;
  /** Lines that the commands print, in this order; "…" stands for what differs from cluster to cluster. */
  readonly expected?: readonly string[];
  /** Null: there is nothing to check; the learner goes on with --next. */
  readonly check: Check | null;
  readonly prepare?: readonly Preparation[];
  /** How to repair what was planted; shown with --hint. */
  readonly repair?: { readonly text: string; readonly commands: readonly string[] };
}

export interface Lesson {
  readonly name: string;
  readonly title: string;
  readonly summary: string;
  /** Created when the lesson begins, beside the pod "client". */
  readonly prepare: readonly Preparation[];
  /** The last one is a fault to find. */
  readonly steps: readonly Step[];
}
