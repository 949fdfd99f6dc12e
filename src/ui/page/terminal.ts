import { FitAddon } from '@xterm/addon-fit';
import { Terminal as Emulator, type ITheme } from '@xterm/xterm';
import css from '@xterm/xterm/css/xterm.css';
import { styledDocument } from './styled-document.ts';

/** A terminal in the page: the only file that the page loads when it is first needed. */
export interface Terminal {
  readonly size: TerminalSize;
  /** `onShown` is called when the bytes have been processed. */
  write(bytes: Uint8Array, onShown: () => void): void;
  focus(): void;
  setDark(isDark: boolean): void;
  /** For screen readers: the text is readable, and new output is announced. */
  setReadable(isReadable: boolean): void;
  close(): void;
}

export interface TerminalSize {
  readonly columns: number;
  readonly rows: number;
}

export interface TerminalOptions {
  readonly isDark: boolean;
  readonly onInput: (bytes: Uint8Array) => void;
  readonly onResize: (size: TerminalSize) => void;
  /** Called when the user leaves the terminal by keyboard: Escape, then Tab. */
  readonly onLeave: () => void;
}

const THEMES: Readonly<Record<'dark' | 'light', ITheme>> = {
  dark: { background: '#1b1f26', foreground: '#e6e9ee', cursor: '#82b1ff', selectionBackground: '#3b5680' },
  light: { background: '#ffffff', foreground: '#1a2029', cursor: '#1d5bc4', selectionBackground: '#b9d2fb' },
};
/** The contrast of WCAG's level AA, whatever colours a program chooses. */
const CONTRAST = 4.5;
const SCROLLBACK_LINES = 5000;

/** Opens a terminal that fills an element. */
export function openTerminal(
  parent: HTMLElement,
  { isDark, onInput, onResize, onLeave }: TerminalOptions,
): Terminal {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(css);
  document.adoptedStyleSheets.push(sheet);
  const themeOf = (dark: boolean) => THEMES[dark ? 'dark' : 'light'];
  const emulator = new Emulator({
    documentOverride: styledDocument,
    theme: themeOf(isDark),
    minimumContrastRatio: CONTRAST,
    scrollback: SCROLLBACK_LINES,
    fontFamily: getComputedStyle(parent).fontFamily,
    fontSize: 13,
    cursorBlink: false,
  });
  const fit = new FitAddon();
  emulator.loadAddon(fit);
  emulator.open(parent);
  const encoder = new TextEncoder();
  emulator.onData((text) => onInput(encoder.encode(text)));
  // Reports of the mouse in old programs are not UTF-8.
  emulator.onBinary((text) => onInput(Uint8Array.from(text, (character) => character.charCodeAt(0))));
  const sizeOf = () => ({ columns: emulator.cols, rows: emulator.rows });
  let isEscaped = false;
  emulator.attachCustomKeyEventHandler((event) => {
    if (event.type !== 'keydown') return true;
    const leaves = isEscaped && event.key === 'Tab';
    isEscaped = event.key === 'Escape';
    if (!leaves) return true;
    event.preventDefault();
    onLeave();
    return false;
  });
  fit.fit();
  emulator.onResize(() => onResize(sizeOf()));
  const observer = new ResizeObserver(() => fit.fit());
  observer.observe(parent);
  return {
    get size() {
      return sizeOf();
    },
    write: (bytes, onShown) => emulator.write(bytes, onShown),
    focus: () => emulator.focus(),
    setDark(dark) {
      emulator.options.theme = themeOf(dark);
    },
    setReadable(isReadable) {
      emulator.options.screenReaderMode = isReadable;
    },
    close() {
      observer.disconnect();
      emulator.dispose();
      document.adoptedStyleSheets = document.adoptedStyleSheets.filter((one) => one !== sheet);
    },
  };
}
