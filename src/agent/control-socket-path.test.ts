import assert from 'node:assert/strict';
import { lstatSync, mkdirSync, mkdtempSync, readlinkSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, test } from 'node:test';
import {
  controlSocketPath,
  controlSocketVariable,
  placeControlSocket,
  removeControlSocket,
} from './control-socket-path.ts';

const folder = mkdtempSync(join(tmpdir(), 'flt-socket-'));
after(() => rmSync(folder, { recursive: true }));
const exists = (path: string) => lstatSync(path, { throwIfNoEntry: false }) !== undefined;

test('the control socket is in the state folder, in place of what a killed agent has left', () => {
  const state = mkdtempSync(join(folder, 'a-'));
  writeFileSync(controlSocketPath(state), '');
  assert.equal(placeControlSocket(state, {}), controlSocketPath(state));
  assert.ok(!exists(controlSocketPath(state)));
});

test('with a folder of sockets, a link in the state folder leads to it, and both are removed', () => {
  const state = mkdtempSync(join(folder, 'b-'));
  const sockets = join(folder, 'run', 'sockets');
  const place = placeControlSocket(state, controlSocketVariable(sockets));
  assert.equal(dirname(place), sockets);
  assert.equal(readlinkSync(controlSocketPath(state)), place);
  writeFileSync(place, '');
  assert.equal(placeControlSocket(state, controlSocketVariable(sockets)), place);
  assert.ok(!exists(place));
  writeFileSync(place, '');
  removeControlSocket(state, sockets);
  assert.ok(!exists(place) && !exists(controlSocketPath(state)));
});

test('a link that someone else has put there is removed, and what it leads to stays', () => {
  const state = mkdtempSync(join(folder, 'c-'));
  const other = join(folder, 'other');
  mkdirSync(other);
  symlinkSync(other, controlSocketPath(state));
  removeControlSocket(state, null);
  assert.ok(exists(other) && !exists(controlSocketPath(state)));
});
