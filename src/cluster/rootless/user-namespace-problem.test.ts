import assert from 'node:assert/strict';
import { test } from 'node:test';
import { userNamespaceProblem } from './user-namespace-problem.ts';

const CASES: Readonly<Record<string, readonly [Readonly<Record<string, string>>, RegExp | null]>> = {
  'a machine that forbids none': [{ 'user/max_user_namespaces': '96364' }, null],
  'a machine with a limit of 0': [
    { 'user/max_user_namespaces': '0' },
    /sudo sysctl -w user\.max_user_namespaces=15000/,
  ],
  "Debian's setting": [
    { 'user/max_user_namespaces': '96364', 'kernel/unprivileged_userns_clone': '0' },
    /sudo sysctl -w kernel\.unprivileged_userns_clone=1/,
  ],
  "Debian's setting, as it is by default": [{ 'kernel/unprivileged_userns_clone': '1' }, null],
  "Ubuntu's AppArmor restriction": [
    { 'kernel/apparmor_restrict_unprivileged_userns': '1' },
    /sudo sysctl -w kernel\.apparmor_restrict_unprivileged_userns=0/,
  ],
};

for (const [machine, [settings, hint]] of Object.entries(CASES)) {
  test(`${machine}: ${hint === null ? 'no problem is known' : 'the fix is named'}`, () => {
    const problem = userNamespaceProblem((name) => settings[name] ?? null);
    if (hint === null) assert.equal(problem, null);
    else assert.match(problem?.hint ?? '', hint);
  });
}
