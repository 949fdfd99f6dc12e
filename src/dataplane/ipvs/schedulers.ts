import { SERVER_FLAG } from '../../kernel/ipvs/constants.ts';

/** The settings for a scheduler of the kernel. */
export interface Scheduler {
  /** Flags of the virtual server. */
  readonly flags: number;
  /** The weight of every real server; all endpoints have the same weight. */
  readonly weight: number;
  /**
   * Whether real servers of weight 0 are skipped; otherwise they must be removed at once for new
   * connections to succeed.
   */
  readonly skipsDraining: boolean;
}

const plain: Scheduler = { flags: 0, weight: 1, skipsDraining: true };

/**
 * The kernel's schedulers (net/netfilter/ipvs). `sh` and `mh` fall back to another real server if the
 * chosen one is draining; otherwise every n-th client would be refused meanwhile. `mh` includes the source
 * port in its hash, as in kube-proxy. `dh` has no fallback. `ovf` refuses connections above the weight, so
 * the weight must be out of reach.
 */
export const SCHEDULERS: Readonly<Record<string, Scheduler>> = {
  rr: plain,
  wrr: plain,
  lc: plain,
  wlc: plain,
  lblc: plain,
  lblcr: plain,
  sh: { ...plain, flags: SERVER_FLAG.scheduler1 },
  dh: { ...plain, skipsDraining: false },
  sed: plain,
  nq: plain,
  mh: { ...plain, flags: SERVER_FLAG.scheduler1 | SERVER_FLAG.scheduler2 },
  fo: plain,
  ovf: { ...plain, weight: 65_535 },
};
