import { readFileSync } from 'node:fs';
import { isIP } from 'node:net';
import type { ProxyVariables } from '../../kube/proxy-environment.ts';
import { cidrContains, parseCidr } from '../../lib/address.ts';
import type { RegistryMirror } from '../../runtime/images/registry-endpoint.ts';

/** How the nodes of a local cluster pull images: through the network of the machine, in which pods have no way. */
export interface MachinePulls {
  /** A descriptor of the machine's network namespace; null: an ordinary user's cluster cannot enter it. */
  readonly network: number | null;
  /** The path of the settings, which `up` writes. */
  readonly settings: string;
}

/** The settings of the last `up`; those of a running cluster apply to its next pull. */
export interface PullSettings {
  /** The proxies of the environment of `up`. */
  readonly proxies: ProxyVariables | null;
  /** The path of NODE_EXTRA_CA_CERTS in that environment. */
  readonly authorities: string | null;
  readonly mirrors: readonly RegistryMirror[];
  /** The cluster's own networks: registries at addresses of these are not the machine's. */
  readonly networks: readonly string[];
}

const VARIABLE = 'FAIRLEAD_MACHINE_PULLS';

/** Returns the variable by which a process of a local cluster learns how to pull; `network`: its descriptor there. */
export function machinePullsVariable(pulls: MachinePulls): NodeJS.ProcessEnv {
  return { [VARIABLE]: JSON.stringify(pulls) };
}

/** Reads the variable; null: nodes of real clusters pull through their own network. */
export function readMachinePulls(environment: NodeJS.ProcessEnv): MachinePulls | null {
  const { [VARIABLE]: text } = environment;
  return text ? (JSON.parse(text) as MachinePulls) : null;
}

/** Returns an environment without the variable. */
export function withoutMachinePulls({ [VARIABLE]: _, ...others }: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  return others;
}

export function readPullSettings(file: string): PullSettings {
  return JSON.parse(readFileSync(file, 'utf8')) as PullSettings;
}

/** Reports whether a registry ("10.96.3.4:5000") is at an address of the cluster's networks. */
export function isOfCluster(registry: string, networks: readonly string[]): boolean {
  const host = URL.parse(`http://${registry}`)?.hostname.replace(/^\[|\]$/g, '') ?? '';
  if (isIP(host) === 0) return false;
  return networks.some((text) => {
    const network = parseCidr(text);
    return network !== null && cidrContains(network, host);
  });
}
