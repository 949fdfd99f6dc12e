import { SERVER_FLAG } from '../../kernel/ipvs/constants.ts';

/** How a scheduler of the kernel is used here. */
export interface Scheduler {
  /** Bits for the virtual server. */
  readonly flags: number;
  /** Of every real server: endpoints are equals. */
  readonly weight: number;
  /** A real server of weight 0 is passed over; else it has to be removed at once for new connections to succeed. */
  readonly passesOver: boolean;
}

const plain: Scheduler = { flags: 0, weight: 1, passesOver: true };

/**
 * The kernel's schedulers (net/netfilter/ipvs). `sh` and `mh` fall back to another real server where the chosen one
 * takes nothing, or every n-th client would be refused while an endpoint drains; `mh` takes the source port into its
 * hash, as kube-proxy has it. `dh` has no way to fall back. `ovf` counts connections against the weight and refuses
 * above it, so that the weight must be out of reach.
 */
export const SCHEDULERS: Readonly<Record<string, Scheduler>> = {
  rr: plain,
  wrr: plain,
  lc: plain,
  wlc: plain,
  lblc: plain,
  lblcr: plain,
  sh: { ...plain, flags: SERVER_FLAG.scheduler1 },
  dh: { ...plain, passesOver: false },
  sed: plain,
  nq: plain,
  mh: { ...plain, flags: SERVER_FLAG.scheduler1 | SERVER_FLAG.scheduler2 },
  fo: plain,
  ovf: { ...plain, weight: 65_535 },
};
