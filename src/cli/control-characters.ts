/** Sequences that this program itself writes, or any other control character (C0, DEL, C1). */
export const CONTROLS = /([\n\t]|\r?\u001b\[K|\u001b\[(?:0|3[1-3])m)|[\u0000-\u001f\u007f-\u009f]/g;

/**
 * Replaces control characters by visible text ("\\x1b"): messages of objects, images and programs could move the cursor, change
 * the title or fake lines of this program on a terminal.
 */
export const withoutControls = (text: string): string =>
  text.replace(
    CONTROLS,
    (character: string, own?: string) => own ?? `\\x${character.charCodeAt(0).toString(16).padStart(2, '0')}`,
  );
