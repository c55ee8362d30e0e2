/**
 * The frame of the dashboard: sign-in, the header, the navigation and the view of the route. On
 * navigation the focus moves to the heading of the view.
 */

import type { ComponentType } from 'preact';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import type { SessionInfo, SessionState } from '../observe/dashboard/snapshot.ts';
import type { ViewProps } from './common/context.ts';
import { ErrorNote, Note, useAction } from './common/controls.tsx';
import { formatZone } from './common/format.ts';
import {
  type IdentifierAction,
  IdentifierActionsContext,
  type Target,
} from './common/identifier-actions.tsx';
import { type Live, useLive } from './common/live.ts';
import { handleSessionEnd, sessionState, signIn, signOut } from './common/operations.ts';
import { Grant } from './common/permissions.ts';
import { linkTo, navigate, useRoute } from './common/router.ts';
import { State } from './common/state.tsx';
import { Name } from './common/text.tsx';
import { ThemeSwitch } from './common/theme.tsx';
import { AuditView } from './views/audit.tsx';
import { BlocksView } from './views/blocks.tsx';
import { DecisionsView } from './views/decisions.tsx';
import { IdentifierView } from './views/identifier.tsx';
import { IdentifierDialog } from './views/identifier-dialogs.tsx';
import { KeysView } from './views/keys.tsx';
import { NamespaceView } from './views/namespace.tsx';
import { NamespacesView } from './views/namespaces.tsx';
import { OverridesView } from './views/overrides.tsx';
import { OverviewView } from './views/overview.tsx';
import { PoliciesView } from './views/policies.tsx';
import { SignIn } from './views/sign-in.tsx';

interface View {
  title: string;
  component: ComponentType<ViewProps>;
  isPermitted: (grant: Grant) => boolean;
}

const VIEWS: Record<string, View> = {
  overview: { title: 'Overview', component: OverviewView, isPermitted: () => true },
  namespaces: {
    title: 'Namespaces',
    component: NamespacesView,
    isPermitted: (grant) => grant.mayInSome('read_namespace') || grant.mayInSome('read_analytics'),
  },
  policies: {
    title: 'Policies',
    component: PoliciesView,
    isPermitted: (grant) => grant.mayInSome('read_namespace'),
  },
  overrides: {
    title: 'Overrides',
    component: OverridesView,
    isPermitted: (grant) => {
      const actions = ['read_override', 'set_override', 'delete_override'] as const;
      return actions.some((action) => grant.mayInSome(action));
    },
  },
  blocks: {
    title: 'Blocks',
    component: BlocksView,
    isPermitted: (grant) => grant.mayInSome('read_override'),
  },
  identifier: {
    title: 'Identifier',
    component: IdentifierView,
    isPermitted: (grant) => {
      return (['read_namespace', 'limit', 'reset'] as const).some((it) => grant.mayInSome(it));
    },
  },
  decisions: {
    title: 'Recent decisions',
    component: DecisionsView,
    isPermitted: (grant) => grant.mayInSome('read_analytics'),
  },
  keys: {
    title: 'Keys',
    component: KeysView,
    isPermitted: (grant) => {
      return (['keys.read', 'keys.create', 'keys.revoke'] as const).some((it) => grant.has(it));
    },
  },
  audit: {
    title: 'Audit log',
    component: AuditView,
    isPermitted: (grant) => grant.has('read_audit'),
  },
};

export function App() {
  const [state, setState] = useState<SessionState>();
  const [reason, setReason] = useState('');
  const [isFresh, setFresh] = useState(false);
  const [error, setError] = useState<Error>();
  const end = (why: string) => {
    // Requests under way when a session ends are answered too. The first answer has the reason.
    setReason((before) => before || why);
    setState((before) => ({ ...before, session: null }));
    // The proxy may have signed in another user.
    const update = (now: SessionState) => {
      setState((before) => (before?.session === null ? { ...now, session: null } : before));
    };
    sessionState().then(update, () => {});
  };
  useEffect(() => {
    handleSessionEnd(end);
    start().then(setState, setError);
  }, []);
  if (error !== undefined) return <ErrorNote error={error} />;
  if (state === undefined) return null;
  const { session } = state;
  if (session === null) {
    const begin = (started: SessionInfo) => {
      setReason('');
      setFresh(true);
      setState({ ...state, session: started });
    };
    return <SignIn state={state} reason={reason} onSignedIn={begin} />;
  }
  return <Frame session={session} isFresh={isFresh} onEnd={end} />;
}

/** A user whom a proxy has signed in gets a session at once. */
async function start(): Promise<SessionState> {
  const state = await sessionState();
  if (state.session !== null || state.user === undefined) return state;
  return { ...state, session: await signIn() };
}

interface FrameProps {
  session: SessionInfo;
  /** Whether the user has just signed in, so that the form with the focus is gone. */
  isFresh: boolean;
  onEnd: (reason: string) => void;
}

function Frame({ session, isFresh, onEnd }: FrameProps) {
  const [live, resume] = useLive(onEnd);
  const route = useRoute();
  const grant = new Grant(session.permissions);
  const signingOut = useAction(async () => {
    await signOut();
    onEnd('');
  });
  const [open, setOpen] = useState<{ action: IdentifierAction; target: Target }>();
  const [done, setDone] = useState('');
  const view = VIEWS[route.view];
  const isItem = route.view === 'namespaces' && route.item !== '';
  const Shown = isItem ? NamespaceView : view?.component;
  const title = view?.title ?? 'Not found';
  const main = useRef<HTMLElement>(null);
  const keepsFocus = useRef(!isFresh);
  useEffect(() => {
    document.title = `${title} – weir`;
    // A page that has just been loaded begins at its top.
    if (!keepsFocus.current) main.current?.querySelector('h1')?.focus();
    keepsFocus.current = false;
    setDone('');
    scrollTo(0, 0);
  }, [route.view, route.item]);
  const openAction = (action: IdentifierAction, target: Target) => {
    setDone('');
    setOpen({ action, target });
  };
  return (
    <IdentifierActionsContext.Provider value={{ grant, open: openAction }}>
      <a class="skip" href="#content">
        Skip to the content
      </a>
      <header>
        <a class="brand" href={linkTo('overview')}>
          weir
        </a>
        <span class="host">
          <Name text={session.server.host} /> · {session.server.version} · times in{' '}
          {formatZone(Date.now())}
        </span>
        <Status live={live} />
        {grant.mayInSome('read_namespace') && <Search />}
        <Account holder={session.holder} />
        <ThemeSwitch />
        <button type="button" onClick={() => signingOut.run()} disabled={signingOut.isRunning}>
          Sign out
        </button>
      </header>
      <nav aria-label="Views">
        <ul>
          {Object.entries(VIEWS)
            .filter(([, { isPermitted }]) => isPermitted(grant))
            .map(([name, { title }]) => (
              <li key={name}>
                <a href={linkTo(name)} aria-current={route.view === name ? 'page' : undefined}>
                  {title}
                </a>
              </li>
            ))}
        </ul>
      </nav>
      <main ref={main} id="content" tabIndex={-1}>
        <Banner live={live} resume={resume} />
        <ErrorNote error={signingOut.error} />
        {done !== '' && <Note kind="success">{done}</Note>}
        {Shown === undefined ? (
          <>
            <h1 tabIndex={-1}>Not found</h1>
            <p class="empty">There is no such view.</p>
          </>
        ) : (
          <Shown
            key={`${route.view}/${route.item}`}
            session={session}
            grant={grant}
            live={live}
            route={route}
          />
        )}
      </main>
      {open !== undefined && (
        <IdentifierDialog
          {...open}
          grant={grant}
          onDone={(what) => {
            setOpen(undefined);
            setDone(what);
          }}
          onClose={() => setOpen(undefined)}
        />
      )}
    </IdentifierActionsContext.Provider>
  );
}

const STATUSES: Readonly<Record<string, string>> = { ready: 'Healthy', degraded: 'Degraded' };

/** The health of the server, with a link to the reasons. */
function Status({ live: { history, connection } }: { live: Live }) {
  const status = history.at(-1)?.health.status;
  if (status === undefined) return null;
  const isLost = connection === 'lost';
  const isHealthy = status === 'ready' && !isLost;
  return (
    <a class="status" href={linkTo('overview')}>
      <State meaning={isHealthy ? 'allowed' : 'warning'}>
        {isLost ? 'No connection' : (STATUSES[status] ?? status)}
      </State>
    </a>
  );
}

/** Finds an identifier in all namespaces. The key `/` puts the focus here. */
function Search() {
  const field = useRef<HTMLInputElement>(null);
  // Not after the first paint: the reader may press the key at once.
  useLayoutEffect(() => {
    const focus = (event: KeyboardEvent) => {
      const { target, key, ctrlKey, metaKey, altKey } = event;
      if (key !== '/' || ctrlKey || metaKey || altKey) return;
      if (target instanceof Element && target.closest('input, select, textarea, dialog')) return;
      event.preventDefault();
      field.current?.focus();
    };
    addEventListener('keydown', focus);
    return () => removeEventListener('keydown', focus);
  }, []);
  return (
    <search>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          const { value } = field.current!;
          if (value !== '') navigate(linkTo('identifier', '', { identifier: value }));
        }}
      >
        <input
          ref={field}
          type="search"
          aria-label="Find in all namespaces"
          aria-keyshortcuts="/"
          placeholder="Find an identifier"
          autocomplete="off"
          spellcheck={false}
        />
        <kbd title="Press / to search">/</kbd>
      </form>
    </search>
  );
}

function Account({ holder }: { holder: SessionInfo['holder'] }) {
  if ('keyId' in holder) {
    return (
      <span class="account" title={holder.keyId}>
        <span class="label">Key</span> <Name text={holder.keyName} />
      </span>
    );
  }
  return (
    <span class="account" title={`The proxy has signed you in. Your role is ${holder.role}.`}>
      <span class="label">{holder.role}</span> <Name text={holder.user} />
    </span>
  );
}

/** Says where the figures are not live. */
function Banner({ live: { connection }, resume }: { live: Live; resume: () => void }) {
  if (connection === 'lost') {
    return (
      <Note kind="warning">
        The connection to weir is lost. The figures are old. Connecting again…
      </Note>
    );
  }
  if (connection === 'replaced') {
    return (
      <Note kind="info">
        Another tab of this browser shows the live figures.{' '}
        <button type="button" onClick={resume}>
          Show them here
        </button>
      </Note>
    );
  }
  return null;
}
