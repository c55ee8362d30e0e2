/** The button that copies an identifier, an id, a key or a command. */

import { useEffect, useRef, useState } from 'preact/hooks';
import { visibleText } from './visible-text.ts';

const SAID_MS = 2_000;

interface CopyProps {
  text: string;
  /** What it copies, for its name. By default, the text. */
  what?: string;
}

export function Copy({ text, what = visibleText(text) }: CopyProps) {
  const button = useRef<HTMLButtonElement>(null);
  const [said, setSaid] = useState('');
  useEffect(() => {
    if (said === '') return undefined;
    const timer = setTimeout(() => setSaid(''), SAID_MS);
    return () => clearTimeout(timer);
  }, [said]);
  return (
    <span class="copy">
      <button
        ref={button}
        type="button"
        aria-label={`Copy ${what}`}
        title="Copy"
        onClick={async () => setSaid((await copy(text, button.current!)) ? 'Copied' : 'Not copied')}
      >
        <svg viewBox="0 0 16 16" aria-hidden="true">
          <path d="M5.5 5.5v-3h8v8h-3M2.5 5.5h8v8h-8z" />
        </svg>
      </button>
      <span class="said" role="status">
        {said}
      </span>
    </span>
  );
}

/** The clipboard needs a page from this machine, or TLS. Without it, a selection is copied. */
async function copy(text: string, near: HTMLElement): Promise<boolean> {
  if (navigator.clipboard !== undefined) {
    return navigator.clipboard.writeText(text).then(
      () => true,
      () => false,
    );
  }
  const area = Object.assign(document.createElement('textarea'), { value: text });
  // In the dialog of the button: outside of it, nothing can be selected.
  (near.closest('dialog') ?? document.body).append(area);
  area.select();
  const isCopied = document.execCommand('copy');
  area.remove();
  near.focus();
  return isCopied;
}
