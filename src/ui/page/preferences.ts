/** The user's choices for this page; kept for the browser tab. */
export interface Preferences {
  /** `system`: as the desktop is set. */
  readonly theme: 'system' | 'light' | 'dark';
  /** Null: as the desktop is set. */
  readonly motion: boolean | null;
}

const KEY = 'preferences';
const DEFAULTS: Preferences = { theme: 'system', motion: null };

export function readPreferences(): Preferences {
  try {
    return { ...DEFAULTS, ...(JSON.parse(sessionStorage.getItem(KEY) ?? '{}') as Partial<Preferences>) };
  } catch {
    // The browser refuses to store, or the text is not ours.
    return DEFAULTS;
  }
}

/** Stores and applies the preferences. */
export function applyPreferences(preferences: Preferences): void {
  const { dataset } = document.documentElement;
  dataset['theme'] = preferences.theme;
  dataset['motion'] = isMotionAllowed(preferences) ? 'on' : 'off';
  try {
    sessionStorage.setItem(KEY, JSON.stringify(preferences));
  } catch {
    // They hold until the page is closed.
  }
}

/** Reports whether things on the page may move. */
export const isMotionAllowed = ({ motion }: Preferences): boolean =>
  motion ?? !matchMedia('(prefers-reduced-motion: reduce)').matches;

/** Reports whether the page is dark. */
export const isDark = ({ theme }: Preferences): boolean =>
  theme === 'system' ? matchMedia('(prefers-color-scheme: dark)').matches : theme === 'dark';
