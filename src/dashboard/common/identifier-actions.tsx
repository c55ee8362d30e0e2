/**
 * What can be done with an identifier that a list has found: a menu beside it. The frame shows the
 * dialogs, so that one stays open when the list loads again.
 */

import { createContext } from 'preact';
import { useContext, useId, useRef } from 'preact/hooks';
import { Copy } from './copy.tsx';
import { Grant } from './permissions.ts';
import { linkTo } from './router.ts';
import { visibleText } from './visible-text.ts';

/** What the menu needs below its button; otherwise it opens above. */
const MENU_HEIGHT_PX = 200;

/** An identifier in a namespace. */
export interface Target {
  namespace: string;
  identifier: string;
}

/** Actions with a dialog. */
export type IdentifierAction = 'override' | 'block' | 'reset';

interface Actions {
  grant: Grant;
  open: (action: IdentifierAction, target: Target) => void;
}

export const IdentifierActionsContext = createContext<Actions>({
  grant: new Grant([]),
  open: () => {},
});

export function IdentifierActions({ namespace, identifier }: Target) {
  const { grant, open } = useContext(IdentifierActionsContext);
  const id = useId();
  const button = useRef<HTMLButtonElement>(null);
  const menu = useRef<HTMLDivElement>(null);
  const choose = (action: IdentifierAction) => {
    menu.current?.hidePopover();
    button.current?.focus();
    open(action, { namespace, identifier });
  };
  /** Beside the button, at its right edge. The menu is in the top layer, so no table cuts it. */
  const place = () => {
    const { top, bottom, right } = button.current!.getBoundingClientRect();
    const { clientWidth, clientHeight } = document.documentElement;
    const isBelow = clientHeight - bottom > MENU_HEIGHT_PX;
    Object.assign(menu.current!.style, {
      right: `${clientWidth - right}px`,
      top: isBelow ? `${bottom}px` : 'auto',
      bottom: isBelow ? 'auto' : `${clientHeight - top}px`,
    });
  };
  return (
    <span class="identifier-actions">
      <Copy text={identifier} />
      <button
        ref={button}
        type="button"
        aria-label={`Actions for ${visibleText(identifier)}`}
        popovertarget={id}
        onClick={place}
      >
        <svg viewBox="0 0 16 16" aria-hidden="true">
          <path d="M3 8h.01M8 8h.01M13 8h.01" />
        </svg>
      </button>
      <div ref={menu} id={id} popover="auto" class="menu">
        {grant.mayInSome('read_namespace') && (
          <a href={linkTo('identifier', '', { namespace, identifier })}>Explain</a>
        )}
        {grant.mayInSome('set_override') && (
          <button type="button" onClick={() => choose('override')}>
            Set override
          </button>
        )}
        {grant.mayInSome('set_override') && (
          <button type="button" class="danger" onClick={() => choose('block')}>
            Block
          </button>
        )}
        {grant.mayInSome('reset') && (
          <button type="button" class="danger" onClick={() => choose('reset')}>
            Reset counters
          </button>
        )}
      </div>
    </span>
  );
}
