// Shortens the SYN timer of a control group until it is killed.
import { attachSynTimeout } from '../syn-timeout.ts';

attachSynTimeout(process.argv[2] ?? '', []);
process.send?.('attached');
process.on('disconnect', () => process.exit(0));
