import type { Lesson } from './lesson.ts';
import { bridge } from './lessons/bridge.ts';
import { failover } from './lessons/failover.ts';
import { modes } from './lessons/modes.ts';
import { names } from './lessons/names.ts';
import { outside } from './lessons/outside.ts';
import { pods } from './lessons/pods.ts';
import { policies } from './lessons/policies.ts';
import { service } from './lessons/service.ts';

/** All lessons, in the order in which they build on each other. */
export const LESSONS: readonly Lesson[] = [pods, bridge, service, modes, outside, names, failover, policies];
