// What JupyterLab's settings cannot do, as an extension written by hand: no Node, no bundler. A cell that is run
// before its kernel is connected waits instead of being dropped, a notebook that is opened again shows what ran, a kernel
// in a string of a cell has colours, and plots on slides are large.
// The relay (env/relay) remembers outputs by cell.
var _JUPYTERLAB = typeof _JUPYTERLAB === 'undefined' ? {} : _JUPYTERLAB;

_JUPYTERLAB.gpulab = (() => {
  const TARGET = 'gpulab.outputs';
  // On slides (make teach) a plot is as large as fits on the screen; its width else stands in its own style.
  const SLIDES = `body[data-jp-deck-mode='presenting'] .gpulab-figure { max-width: min(86vw, 120vh) !important; }`;
  // By the theme's own variables: light and dark follow.
  const COLOURS = ['keyword', 'def', 'number', 'string', 'comment', 'meta']
    .map(kind => `.gpulab-kernel-${kind} { color: var(--jp-mirror-editor-${kind}-color); }`)
    .join('\n');
  const PLAIN = '.gpulab-kernel { color: var(--jp-content-font-color1); } .gpulab-kernel-keyword { font-weight: bold; }';
  let shared;

  // JupyterLab's own copy of a package, so that its tokens are the same objects.
  const load = async name => {
    const [newest] = Object.values(shared[name]);
    return (await newest.get())();
  };

  const executor = notebook => ({
    id: 'gpulab:cell-executor',
    autoStart: true,
    provides: notebook.INotebookCellExecutor,
    activate: () => ({
      runCell: async options => {
        const { cell, sessionContext } = options;
        if (cell.model.type === 'code' && sessionContext && !sessionContext.isReady) {
          cell.setPrompt('*');
          await sessionContext.ready;
        }
        return notebook.runCell(options);
      }
    })
  });

  // What one cell showed since the page looked away: an output of the notebook's format for each message.
  const add = (cell, type, content) => {
    const outputs = cell.model.outputs;
    if (type === 'clear_output') {
      outputs.clear(content.wait);
    } else if (type === 'execute_input') {
      cell.model.executionCount = content.execution_count;
    } else if (type === 'update_display_data') {
      const id = content.transient && content.transient.display_id;
      for (let at = 0; at < outputs.length; at++) {
        if (cell.shownAs && cell.shownAs[at] === id) {
          outputs.set(at, { ...content, output_type: 'display_data' });
        }
      }
    } else if (['stream', 'display_data', 'execute_result', 'error'].includes(type)) {
      const { transient, ...output } = content;
      outputs.add({ ...output, output_type: type });
      cell.shownAs = cell.shownAs || {};
      cell.shownAs[outputs.length - 1] = transient && transient.display_id;
    }
  };

  const restore = panel => {
    const cells = () => panel.content.widgets.filter(cell => cell.model.type === 'code');
    const follow = kernel => {
      if (!kernel || kernel.gpulabFollowed || kernel.name !== 'gpulab-rust') {
        return;
      }
      kernel.gpulabFollowed = true;
      // Cells that another page, or this one before it was closed, has started: by the request's id.
      const running = new Map();
      kernel.iopubMessage.connect((_, message) => {
        const cell = running.get(message.parent_header.msg_id);
        if (!cell || cell.isDisposed) {
          return;
        }
        add(cell, message.header.msg_type, message.content);
        if (message.header.msg_type === 'status' && message.content.execution_state === 'idle') {
          running.delete(message.parent_header.msg_id);
          cell.setPrompt(`${cell.model.executionCount ?? ''}`);
        }
      });
      const comm = kernel.createComm(TARGET);
      comm.onMsg = message => {
        for (const [id, seen] of Object.entries(message.content.data.cells)) {
          const cell = cells().find(one => one.model.id === id);
          if (!cell || cell.model.sharedModel.getSource() !== seen.code) {
            continue;
          }
          cell.model.outputs.clear();
          seen.messages.forEach(([type, content]) => add(cell, type, content));
          cell.model.executionCount = seen.count;
          if (seen.running) {
            running.set(seen.request, cell);
            cell.setPrompt('*');
          }
        }
      };
      comm.open({});
    };
    panel.context.ready.then(async () => {
      await panel.sessionContext.ready;
      follow(panel.sessionContext.session && panel.sessionContext.session.kernel);
    });
  };

  // Rust's raw strings: those with a function in them hold CUDA C or Rust, and one list of keywords does for both.
  const RAW = /\br(#*)"([^]*?)"\1/g;
  const KERNEL = /__(global|device)__|\bfn \w/;
  const TOKEN = new RegExp(
    [
      '(?<comment>//.*|/\\*[^]*?\\*/)',
      '(?<string>"(?:\\\\.|[^"\\\\\\n])*")',
      '(?<meta>^[ \\t]*#.*)',
      // Not the dots of a range; Rust's suffixes and C's.
      '(?<number>\\b(?:0x[0-9a-fA-F_]+|[0-9][0-9_]*(?:\\.(?!\\.)[0-9_]*)?(?:[eE][+-]?[0-9]+)?)(?:[fiu](?:8|16|32|64)|[iu]size|[uUlLfF]*))',
      '(?<word>[A-Za-z_][A-Za-z0-9_]*)'
    ].join('|'),
    'gm'
  );
  const KEYWORD = new RegExp(
    '^(' +
      'if|else|for|while|do|return|break|continue|switch|case|default|struct|union|enum|template|typename|class|const|constexpr|' +
      'static|inline|extern|volatile|using|namespace|typedef|sizeof|auto|asm|true|false|nullptr|void|bool|char|short|int|long|' +
      'fn|let|mut|pub|use|impl|trait|where|match|loop|in|as|move|ref|self|Self|unsafe|crate|mod|type|macro_rules|' +
      '[fiu](16|32|64)|[iu]8|[iu]size|str|' +
      'float|double|unsigned|signed|size_t|half|bf16|u?int(8|16|32|64)_t|(float|double|u?int|half)[234]|' +
      '__(global|device|host|shared|constant|restrict|launch_bounds|align|forceinline|noinline)__' +
      ')$'
  );
  const BUILTIN = /^(threadIdx|blockIdx|blockDim|gridDim|warpSize|__\w+|atomic[A-Z]\w*)$/;
  const kind = ({ groups }) => {
    const [name] = Object.keys(groups).filter(one => groups[one] !== undefined);
    return name !== 'word' ? name : KEYWORD.test(groups.word) ? 'keyword' : BUILTIN.test(groups.word) ? 'def' : null;
  };

  const marks = (text, view) => {
    const found = [];
    const add = (from, length, name) => found.push(view.Decoration.mark({ class: name }).range(from, from + length));
    for (const raw of text.matchAll(RAW)) {
      const [whole, , inside] = raw;
      if (inside && KERNEL.test(inside)) {
        const start = raw.index + whole.indexOf('"') + 1;
        add(start, inside.length, 'gpulab-kernel');
        for (const token of inside.matchAll(TOKEN)) {
          const name = kind(token);
          if (name) {
            add(start + token.index, token[0].length, `gpulab-kernel-${name}`);
          }
        }
      }
    }
    return view.Decoration.set(found, true);
  };

  const colours = (codemirror, state, view) => ({
    id: 'gpulab:kernel-colours',
    autoStart: true,
    requires: [codemirror.IEditorExtensionRegistry],
    activate: (app, registry) => {
      const coloured = view.ViewPlugin.fromClass(
        class {
          constructor(editor) {
            this.decorations = marks(editor.state.doc.toString(), view);
          }
          update(change) {
            if (change.docChanged) {
              this.decorations = marks(change.state.doc.toString(), view);
            }
          }
        },
        { decorations: one => one.decorations }
      );
      // The Rust mode marks the whole string. Of nested marks the one of highest precedence is innermost, and its colour is seen.
      const highest = state.Prec.highest(coloured);
      const extension = codemirror.EditorExtensionRegistry.createImmutableExtension(highest);
      registry.addExtension({ name: 'gpulab-kernel', factory: () => extension });
    }
  });

  const outputs = notebook => ({
    id: 'gpulab:outputs',
    autoStart: true,
    requires: [notebook.INotebookTracker],
    activate: (app, tracker) => {
      const style = document.createElement('style');
      style.textContent = [SLIDES, PLAIN, COLOURS].join('\n');
      document.head.append(style);
      tracker.forEach(restore);
      tracker.widgetAdded.connect((_, panel) => restore(panel));
    }
  });

  return {
    init: scope => {
      shared = scope;
    },
    get: async () => {
      const notebook = await load('@jupyterlab/notebook');
      const plugins = [executor(notebook), outputs(notebook)];
      try {
        const editor = ['@jupyterlab/codemirror', '@codemirror/state', '@codemirror/view'];
        plugins.push(colours(...(await Promise.all(editor.map(load)))));
      } catch (error) {
        // Cells run without colours, too.
        console.warn('gpulab: kernels in strings have no colours:', error);
      }
      return () => ({ __esModule: true, default: plugins });
    }
  };
})();
