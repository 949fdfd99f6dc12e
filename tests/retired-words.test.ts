import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join, relative, resolve } from 'node:path';
import { test } from 'node:test';

/** Words that the code, its messages and its documents no longer use, each with its replacement. */
const RETIRED: readonly (readonly [word: RegExp, instead: string])[] = [
  [/fairlead-floor/, 'fairlead-fallback'],
  [/(?<!'up', ')(?<!unknown option )--plug-in/, '--host-access'],
  [/server-?pulse/i, 'API health probe'],
  [/kept-?fields/i, 'informer transforms'],
  [/remembered-?numbers/i, 'restored marks'],
  [/remembered-?clients/i, 'restored affinity'],
  [/device-?ways/i, 'tc attachment'],
  [/\bhandOver\b/, 'drain'],
  [/\bsuspicions?\b/i, 'outlier ejection'],
  [/\brescued?\b/i, 'reroute'],
  [/one-at-a-time/, 'mutex'],
  [/\b(is_piece|there_is)\b/, 'is_fragment, test_flag'],
  [/\b(MOST|LEAST)_(?!CONNECTIONS)/, 'MAX_, MIN_'],
  [/\bmost(BackoffMs|Ejected|Endpoints)\b/, 'max'],
  [/(?<![Tt]here )\b(is|are) no (?!longer\b|more\b)[a-z]/, 'is not a'],
  [/\btold below\b/, 'described below'],
  [/\bstrangers?\b/i, 'traffic from outside the cluster'],
  [/\bwhoever\b/i, 'name the actor'],
  [/\bnobody\b(?!:)/i, 'no program, no node'],
  [/\bbefalls?\b/i, 'happens to'],
  [/\b(what )?becomes of\b/i, 'name what happens'],
  [/\bof before(?! ?[?!:.)])/, 'the previous'],
  [/\bin one way\b/i, 'alike'],
  [/\bwithout a gap\b/i, 'without interruption'],
  [/as they must be/, 'behaved as expected'],
  [/endpoint of then/, 'the same endpoint'],
  [/meets the tables of/, 'enters the Service rules of'],
  [/announces no longer/, 'stopped announcing'],
  [/\banew\b/, 'again'],
  [/\bby way of\b/, 'through'],
  [/: (an object|a list|text) belongs here/, 'must be an object, a list, a string'],
  [/programming of everything/, 'full sync'],
  [/\bleads? out of it\b/, 'is outside'],
  [/\bwhat is left\b/i, 'name what remains'],
  [/\btells of\b/, 'reports'],
  [/\bgives (load-balancer )?addresses away\b/, 'assigns addresses'],
  [/\bEverything about the\b/, 'name the part'],
  [/\bwhat others (?:change|remove|made)\b/, 'changes by other programs'],
  [/\btakes? away\b/, 'removes'],
  [/\bthe world\b(?!-)/, 'external networks, external names'],
  [/\b(breaks?|broke|broken) off\b/, 'broke, was interrupted'],
  [/\bof no use\b/, 'unusable'],
  [/\bcarr(y|ies|ied|ying) (it |this )?out\b/, 'implement, execute'],
  [/\bnot? [a-z ]*\bany more\b/, 'no longer'],
  [/\bwhatever the number\b/, 'regardless of the number'],
  [/\b(agent|server|one) (is|was|goes) away\b/, 'down, unreachable'],
];

const root = resolve(import.meta.dirname, '..');
const PLACES = [
  'src',
  'bpf',
  'cni',
  'docs',
  'tests',
  'tools',
  'bench',
  'examples',
  'deploy',
  'README.md',
  'CONTRIBUTING.md',
  'CHANGELOG.md',
  'SECURITY.md',
];
const TEXTS = /\.(ts|tsx|mjs|md|c|h|css|html|sh|yaml)$/;
/** Texts of others: the descriptions of Kubernetes' fields, dependencies, and files produced by tests. */
const NOT_OURS = /(^|\/)(generated|node_modules|golden|dist)\//;

test('no file uses a retired word', () => {
  const own = relative(root, import.meta.filename);
  const found = PLACES.flatMap(filesOf).flatMap((file) => {
    if (file === own || NOT_OURS.test(file)) return [];
    return readFileSync(join(root, file), 'utf8')
      .split('\n')
      .flatMap((line, i) =>
        RETIRED.filter(([word]) => word.test(line)).map(
          ([word, instead]) => `${file}:${i + 1}: ${word.exec(line)?.[0]} (instead: ${instead})`,
        ),
      );
  });
  assert.deepEqual(found, []);
});

function filesOf(place: string): string[] {
  if (TEXTS.test(place)) return [place];
  return readdirSync(join(root, place), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && TEXTS.test(entry.name))
    .map((entry) => relative(root, join(entry.parentPath, entry.name)));
}
