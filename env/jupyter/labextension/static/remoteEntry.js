// What JupyterLab's settings cannot do, as an extension written by hand: no Node, no bundler. A cell that is run
// before its kernel is connected waits instead of being dropped, a notebook that is opened again shows what ran, and plots on
// slides are large.
// The relay (env/relay) remembers outputs by cell.
var _JUPYTERLAB = typeof _JUPYTERLAB === 'undefined' ? {} : _JUPYTERLAB;

_JUPYTERLAB.gpulab = (() => {
  const TARGET = 'gpulab.outputs';
  // On slides (make teach) a plot is as large as fits on the screen; its width else stands in its own style.
  const SLIDES = `body[data-jp-deck-mode='presenting'] .gpulab-figure { max-width: min(86vw, 120vh) !important; }`;
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

  const outputs = notebook => ({
    id: 'gpulab:outputs',
    autoStart: true,
    requires: [notebook.INotebookTracker],
    activate: (app, tracker) => {
      const style = document.createElement('style');
      style.textContent = SLIDES;
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
      return () => ({ __esModule: true, default: [executor(notebook), outputs(notebook)] });
    }
  };
})();
