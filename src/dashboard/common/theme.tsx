/** Light or dark: what the system prefers, or what the user has chosen in this browser. */

import { useState } from 'preact/hooks';

const STORED = 'weir-theme';
const THEMES = ['system', 'light', 'dark'] as const;
type Theme = (typeof THEMES)[number];

function storedTheme(): Theme {
  const stored = localStorage.getItem(STORED);
  return THEMES.find((theme) => theme === stored) ?? 'system';
}

/** Applies the stored choice to the page. */
export function applyTheme(): void {
  const theme = storedTheme();
  if (theme === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

export function ThemeSwitch() {
  const [theme, setTheme] = useState(storedTheme);
  return (
    <label class="theme">
      <span>Theme</span>
      <select
        value={theme}
        onChange={({ currentTarget }) => {
          localStorage.setItem(STORED, currentTarget.value);
          applyTheme();
          setTheme(storedTheme());
        }}
      >
        {THEMES.map((one) => (
          <option key={one} value={one}>
            {one[0].toUpperCase() + one.slice(1)}
          </option>
        ))}
      </select>
    </label>
  );
}
