import assert from 'node:assert/strict';
import { decide } from '../../../service/decide.ts';
import type { Frontend, ServiceMap, SourceClass } from '../../../service/model.ts';
import { ACTION } from '../generated/layout.ts';
import { hasMembers } from '../plan.ts';
import type { ResolvedFrontend } from './memory-maps.ts';

/**
 * Asserts that the programs do what the oracle says, unless they leave a frontend to nf_tables. Returns the
 * number of compared source classes.
 */
export function agree(
  frontend: Frontend,
  map: ServiceMap,
  shown: ReadonlyMap<string, ResolvedFrontend>,
): number {
  const protocol = { TCP: 6, UDP: 17, SCTP: 132 }[frontend.protocol];
  const entry = shown.get(`${frontend.address} port ${frontend.port} protocol ${protocol}`);
  if (!entry || frontend.address === null) return 0;
  let compared = 0;
  for (const sourceClass of ['pod', 'node'] as const satisfies readonly SourceClass[]) {
    const route: ResolvedFrontend['pod'] = entry[sourceClass];
    if (route.action === ACTION.PASS) continue;
    const verdict = decide(map, {
      // No endpoint has this address.
      source: frontend.family === 'ipv4' ? '198.18.0.1' : '2001:db8:ffff::1',
      sourceClass,
      destination: frontend.address,
      port: frontend.port,
      protocol: frontend.protocol,
    });
    assert.equal(verdict.action, route.action === ACTION.REFUSE ? 'reject' : 'forward');
    assert.equal(entry.affinitySeconds, frontend.affinitySeconds ?? 0);
    const wanted = verdict.candidates.map(({ endpoint }) => `${endpoint.ip} ${endpoint.port}`).sort();
    assert.deepEqual([...new Set(route.endpoints)].sort(), wanted);
    const planned = frontend.routes[sourceClass];
    const spared = planned.action === 'forward' ? (planned.pool.spared ?? []) : [];
    const members = [...wanted, ...spared.map(({ ip, port }) => `${ip} ${port}`)].sort();
    assert.deepEqual(route.members, hasMembers(frontend) ? members : []);
    assert.ok(sourceClass === 'node' || verdict.candidates.every(({ masquerade }) => !masquerade));
    compared++;
  }
  return compared;
}
