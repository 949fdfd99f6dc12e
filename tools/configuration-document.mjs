// Writes docs/configuration.md from the reader of the agent's configuration.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { configurationDocument } from '../src/agent/configuration-document.ts';

writeFileSync(join(import.meta.dirname, '..', 'docs', 'configuration.md'), configurationDocument());
