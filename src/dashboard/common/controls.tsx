/** Controls that all views share: fields, buttons, notes, dialogs and tables. */

import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useId, useLayoutEffect, useRef, useState } from 'preact/hooks';

type InputProps = JSX.IntrinsicElements['input'];

interface FieldProps {
  label: string;
  hint?: string;
}

/** A labelled input. */
export function Field({ label, hint, ...input }: FieldProps & InputProps) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <input id={id} aria-describedby={hint && `${id}-hint`} autocomplete="off" {...input} />
      {hint && <small id={`${id}-hint`}>{hint}</small>}
    </div>
  );
}

export function TextArea({ label, hint, ...area }: FieldProps & JSX.IntrinsicElements['textarea']) {
  const id = useId();
  return (
    <div class="field wide">
      <label for={id}>{label}</label>
      <textarea id={id} aria-describedby={hint && `${id}-hint`} spellcheck={false} {...area} />
      {hint && <small id={`${id}-hint`}>{hint}</small>}
    </div>
  );
}

interface SelectProps extends FieldProps {
  value: string;
  options: readonly (readonly [value: string, text: string])[];
  onChoose: (value: string) => void;
}

export function Select({ label, hint, value, options, onChoose }: SelectProps) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <select id={id} value={value} onChange={(event) => onChoose(event.currentTarget.value)}>
        {options.map(([option, text]) => (
          <option key={option} value={option}>
            {text}
          </option>
        ))}
      </select>
      {hint && <small>{hint}</small>}
    </div>
  );
}

interface CheckboxProps {
  label: ComponentChildren;
  isChecked: boolean;
  onToggle: (isChecked: boolean) => void;
}

export function Checkbox({ label, isChecked, onToggle }: CheckboxProps) {
  return (
    <label class="checkbox">
      <input
        type="checkbox"
        checked={isChecked}
        onChange={(event) => onToggle(event.currentTarget.checked)}
      />
      <span>{label}</span>
    </label>
  );
}

type NoteKind = 'error' | 'denied' | 'warning' | 'success' | 'info';

/** A message. Errors are announced at once, others when the reader is idle. */
export function Note({ kind, children }: { kind: NoteKind; children: ComponentChildren }) {
  return (
    <div class={`note ${kind}`} role={kind === 'error' ? 'alert' : 'status'}>
      {children}
    </div>
  );
}

/** The error of a request, where there is one. */
export function ErrorNote({ error }: { error: Error | undefined }) {
  if (error === undefined) return null;
  return <Note kind="error">{error.message}</Note>;
}

/** Says why a view shows nothing. */
export function Unavailable({ permission, what }: { permission: string; what: string }) {
  return (
    <p class="empty">
      You may not {what}. This needs the permission <code>{permission}</code>.
    </p>
  );
}

export interface Load<T> {
  data: T | undefined;
  error: Error | undefined;
  isLoading: boolean;
  reload: () => void;
}

/** What was loaded, and the question that it answers. */
interface Answer<T> extends Omit<Load<T>, 'reload'> {
  question: readonly unknown[];
}

const NOT_LOADED = { data: undefined, error: undefined, isLoading: true } as const;

/** A number that grows at an interval while the page is visible: the `refresh` of `useLoad`. */
export function useTicks(intervalMs: number): number {
  const [ticks, setTicks] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => {
      if (document.visibilityState === 'visible') setTicks((before) => before + 1);
    }, intervalMs);
    return () => clearInterval(timer);
  }, [intervalMs]);
  return ticks;
}

/**
 * Loads data when the view opens, again when its question changes, and again on `refresh`. A result
 * is only returned for its own question: a late one is dropped, and one of another question is not
 * shown while the next loads.
 * @param question what the data depend on
 * @param refresh asks the same question again when it changes
 */
export function useLoad<T>(
  load: () => Promise<T>,
  question: readonly unknown[],
  refresh?: unknown,
): Load<T> {
  const [state, setState] = useState({ question, ...NOT_LOADED } as Answer<T>);
  const [version, setVersion] = useState(0);
  const isAnswered = state.question.every((part, i) => part === question[i]);
  useEffect(() => {
    let isCurrent = true;
    const data = isAnswered ? state.data : undefined;
    setState({ question, data, error: undefined, isLoading: true });
    load().then(
      (data) => isCurrent && setState({ question, data, error: undefined, isLoading: false }),
      (error) => isCurrent && setState({ question, data: undefined, error, isLoading: false }),
    );
    return () => {
      isCurrent = false;
    };
  }, [...question, refresh, version]);
  const { data, error, isLoading } = isAnswered ? state : NOT_LOADED;
  return { data, error, isLoading, reload: () => setVersion((before) => before + 1) };
}

export interface Action<Args extends unknown[]> {
  run: (...args: Args) => Promise<boolean>;
  error: Error | undefined;
  isRunning: boolean;
  clear: () => void;
}

/** An action with its error. `run` resolves with whether it has succeeded. */
export function useAction<Args extends unknown[]>(
  act: (...args: Args) => Promise<void>,
): Action<Args> {
  const [error, setError] = useState<Error>();
  const [isRunning, setRunning] = useState(false);
  const run = async (...args: Args) => {
    setRunning(true);
    setError(undefined);
    try {
      await act(...args);
      return true;
    } catch (thrown) {
      setError(thrown instanceof Error ? thrown : new Error(String(thrown)));
      return false;
    } finally {
      setRunning(false);
    }
  };
  return { run, error, isRunning, clear: () => setError(undefined) };
}

interface DialogProps {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
}

/** A modal dialog, which is open while it is shown. The browser keeps and returns the focus. */
export function Dialog({ title, onClose, children }: DialogProps) {
  const ref = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const opener = document.activeElement;
    ref.current?.showModal();
    return () => {
      if (opener instanceof HTMLElement && opener.isConnected) opener.focus();
      else document.querySelector('h1')?.focus();
    };
  }, []);
  return (
    <dialog ref={ref} aria-labelledby={id} onClose={onClose}>
      <h2 id={id}>{title}</h2>
      {children}
    </dialog>
  );
}

interface ConfirmProps {
  title: string;
  /** The name of the button: what it does, as in "Delete override". */
  action: string;
  run: () => Promise<void>;
  onClose: () => void;
  children: ComponentChildren;
}

/** Asks before an action that cannot be undone. The focus starts on the button that cancels. */
export function Confirm({ title, action, run, onClose, children }: ConfirmProps) {
  const confirmed = useAction(run);
  return (
    <Dialog title={title} onClose={onClose}>
      {children}
      <ErrorNote error={confirmed.error} />
      <div class="buttons">
        <button type="button" onClick={onClose}>
          Cancel
        </button>
        <button
          type="button"
          class="danger"
          disabled={confirmed.isRunning}
          onClick={async () => {
            if (await confirmed.run()) onClose();
          }}
        >
          {action}
        </button>
      </div>
    </Dialog>
  );
}

/** The order that the reader has chosen. */
export interface Sort {
  column: string;
  isDescending: boolean;
}

interface TableProps {
  caption: string;
  /** A name that ends in `#` is that of a column of numbers; `Actions` has buttons. */
  columns: readonly string[];
  /** Columns with a button that orders the rows. */
  sortable?: readonly string[];
  sort?: Sort | undefined;
  onSort?: (column: string) => void;
  children: ComponentChildren;
}

/** Tables with more columns become a list of cards on a narrow screen. */
const NARROW_COLUMNS_MAX = 3;

/** The heading of a column without the mark of numbers. */
export const headingOf = (column: string): string => column.replace(/#$/, '');

/**
 * A table that scrolls by itself where it is too wide. Only then it takes the focus. The roles keep
 * it a table where the style shows its rows as cards, whose labels are the headings.
 */
export function Table({ caption, columns, sortable = [], sort, onSort, children }: TableProps) {
  const ref = useRef<HTMLDivElement>(null);
  const measure = () => {
    const region = ref.current!;
    const scrolls = region.scrollWidth > region.clientWidth;
    const attributes = { tabindex: '0', role: 'region', 'aria-label': caption };
    for (const [name, value] of Object.entries(attributes)) {
      if (scrolls) region.setAttribute(name, value);
      else region.removeAttribute(name);
    }
  };
  // At once after each change of the rows, and a frame after one of the window or within a cell.
  useLayoutEffect(() => {
    for (const row of ref.current!.querySelectorAll('tbody tr')) {
      for (const [i, cell] of [...row.children].entries()) {
        const label = headingOf(columns[i] ?? '');
        if ((cell as HTMLElement).dataset.label !== label) cell.setAttribute('data-label', label);
      }
    }
    measure();
  });
  useLayoutEffect(() => {
    const region = ref.current!;
    const observer = new ResizeObserver(measure);
    observer.observe(region);
    for (const child of region.children) observer.observe(child);
    return () => observer.disconnect();
  }, [caption]);
  const isWide = columns.length > NARROW_COLUMNS_MAX;
  return (
    <div class={isWide ? 'table cards' : 'table'} ref={ref}>
      <table>
        <caption>{caption}</caption>
        <thead>
          <tr>
            {columns.map((column) => {
              const isNumber = column.endsWith('#');
              const heading = headingOf(column);
              const order = sort?.isDescending ? 'descending' : 'ascending';
              const isSorted = sort?.column === column;
              return (
                <th
                  key={column}
                  scope="col"
                  class={isNumber ? 'number' : column.toLowerCase()}
                  aria-sort={isSorted ? order : undefined}
                >
                  {sortable.includes(column) ? (
                    <button type="button" class="sort" onClick={() => onSort?.(column)}>
                      {heading}
                    </button>
                  ) : (
                    heading
                  )}
                </th>
              );
            })}
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}

/** A figure with its name, and a note below it. */
export function Figure({
  name,
  value,
  note,
  kind,
}: {
  name: string;
  value: ComponentChildren;
  note?: ComponentChildren;
  kind?: 'good' | 'bad' | 'warn' | undefined;
}) {
  return (
    <div class={`figure ${kind ?? ''}`}>
      <dt>{name}</dt>
      <dd>
        <strong>{value}</strong>
        {note !== undefined && <small>{note}</small>}
      </dd>
    </div>
  );
}
