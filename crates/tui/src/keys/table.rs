//! Every action: its name in files, where it holds, its keys, and what help says of it.

use super::{ActionInfo, Scope};

macro_rules! actions {
    ($($scope:ident { $($action:ident $id:literal [$($key:literal),*] $help:literal;)* })*) => {
        /// What a key can do. The names in files and the default keys are in [`ACTIONS`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Action { $($(#[doc = $help] $action,)*)* }

        /// Every action, in the order in which help shows them.
        pub const ACTIONS: &[ActionInfo] = &[$($(ActionInfo {
            action: Action::$action,
            id: $id,
            scope: Scope::$scope,
            keys: &[$($key),*],
            help: $help,
        },)*)*];
    };
}

actions! {
    Editor {
        Submit "tui.input.submit" ["enter"] "Send the message; during a run, steer";
        NewLine "tui.input.newLine" ["shift+enter", "ctrl+j"] "Insert a line break; so does Enter after a backslash";
        Complete "tui.input.tab" ["tab"] "Complete a path, a file or a command";
        CursorUp "tui.editor.cursorUp" ["up"] "Up a row; in the first row, the previous sent message";
        CursorDown "tui.editor.cursorDown" ["down"] "Down a row; in the last row, the next sent message";
        CursorLeft "tui.editor.cursorLeft" ["left", "ctrl+b"] "Left a character";
        CursorRight "tui.editor.cursorRight" ["right", "ctrl+f"] "Right a character";
        CursorWordLeft "tui.editor.cursorWordLeft" ["alt+left", "ctrl+left", "alt+b"] "Left a word";
        CursorWordRight "tui.editor.cursorWordRight" ["alt+right", "ctrl+right", "alt+f"] "Right a word";
        CursorLineStart "tui.editor.cursorLineStart" ["home", "ctrl+a"] "To the beginning of the line";
        CursorLineEnd "tui.editor.cursorLineEnd" ["end", "ctrl+e"] "To the end of the line";
        CursorTextStart "tui.editor.cursorTextStart" ["ctrl+home", "alt+<"] "To the beginning of the text";
        CursorTextEnd "tui.editor.cursorTextEnd" ["ctrl+end", "alt+>"] "To the end of the text";
        PageUp "tui.editor.pageUp" ["pageUp"] "A page up";
        PageDown "tui.editor.pageDown" ["pageDown"] "A page down";
        JumpForward "tui.editor.jumpForward" ["ctrl+]"] "To the next occurrence of the character typed then";
        JumpBackward "tui.editor.jumpBackward" ["ctrl+alt+]"] "To the previous occurrence of the character typed then";
        HistoryPrevious "tui.editor.historyPrevious" ["alt+p"] "The previous sent message";
        HistoryNext "tui.editor.historyNext" ["alt+n"] "The next sent message";
        DeleteCharBackward "tui.editor.deleteCharBackward" ["backspace", "shift+backspace", "ctrl+h"] "Delete the character before the cursor";
        DeleteCharForward "tui.editor.deleteCharForward" ["delete", "ctrl+d"] "Delete the character after the cursor";
        DeleteWordBackward "tui.editor.deleteWordBackward" ["ctrl+w", "alt+backspace", "ctrl+backspace"] "Cut the word before the cursor";
        DeleteWordForward "tui.editor.deleteWordForward" ["alt+d", "alt+delete", "ctrl+delete"] "Cut the word after the cursor";
        DeleteToLineStart "tui.editor.deleteToLineStart" ["ctrl+u"] "Cut to the beginning of the line";
        DeleteToLineEnd "tui.editor.deleteToLineEnd" ["ctrl+k"] "Cut to the end of the line";
        Yank "tui.editor.yank" ["ctrl+y"] "Paste the last cut text";
        YankPop "tui.editor.yankPop" ["alt+y"] "Replace it with the text cut before that";
        CopyText "tui.editor.copy" ["alt+w"] "Copy the selection, or else all text, to the clipboard";
        Undo "tui.editor.undo" ["ctrl+-", "ctrl+_"] "Undo the last edit";
        Redo "tui.editor.redo" ["alt+-", "alt+_"] "Redo it";
    }
    Select {
        SelectUp "tui.select.up" ["up", "ctrl+p"] "The row above";
        SelectDown "tui.select.down" ["down", "ctrl+n"] "The row below";
        SelectPageUp "tui.select.pageUp" ["pageUp"] "A page up";
        SelectPageDown "tui.select.pageDown" ["pageDown"] "A page down";
        SelectFirst "tui.select.first" ["home"] "The first row";
        SelectLast "tui.select.last" ["end"] "The last row";
        SelectConfirm "tui.select.confirm" ["enter"] "Select";
        SelectCancel "tui.select.cancel" ["escape", "ctrl+c"] "Cancel";
    }
    App {
        Interrupt "app.interrupt" ["escape"] "Stop the current work; when nothing runs, twice: the tree";
        Clear "app.clear" ["ctrl+c"] "Clear the editor; again: exit";
        Exit "app.exit" ["ctrl+d"] "Exit, when the editor is empty";
        Suspend "app.suspend" ["ctrl+z"] "Suspend, until the shell resumes it";
        FollowUp "app.message.followUp" ["alt+enter"] "Send when the work is done";
        Dequeue "app.message.dequeue" ["alt+up"] "Take the last queued message back into the editor";
        ThinkingCycle "app.thinking.cycle" ["shift+tab"] "The next level of thinking";
        PlanToggle "app.plan.toggle" ["alt+m"] "Plan mode on or off";
        ThinkingToggle "app.thinking.toggle" ["ctrl+t"] "Show thinking and output in full from now on, or fold them";
        ToolsExpand "app.tools.expand" ["ctrl+o"] "Open the last folded output; again, the one before it";
        ModelSelect "app.model.select" ["ctrl+l"] "Choose a model";
        ModelNext "app.model.cycleForward" ["ctrl+p"] "The next model";
        ModelPrevious "app.model.cycleBackward" ["ctrl+shift+p"] "The previous model";
        HistorySearch "app.history.search" ["ctrl+r"] "Search sent messages";
        ExternalEditor "app.editor.external" ["ctrl+g"] "Edit in $VISUAL or $EDITOR";
        PasteImage "app.clipboard.pasteImage" ["ctrl+v"] "Insert the path of the image on the clipboard";
        Copy "app.message.copy" ["ctrl+x"] "Copy the last answer";
        NewSession "app.session.new" [] "A new session";
        Tree "app.session.tree" [] "The session's tree";
        Fork "app.session.fork" [] "A new session from an earlier message";
        Resume "app.session.resume" [] "Continue another session";
        Help "app.help" ["f1"] "This help; so does ? in the empty editor";
    }
    Tree {
        TreeFold "app.tree.foldOrUp" ["left", "ctrl+left", "alt+left"] "Fold the branch";
        TreeUnfold "app.tree.unfoldOrDown" ["right", "ctrl+right", "alt+right"] "Unfold it";
        TreePreview "app.tree.preview" ["space"] "Show the whole node beside the tree";
        TreeFilter "app.tree.filter.cycleForward" ["tab"] "The next filter";
        TreeLabel "app.tree.editLabel" ["alt+l", "ctrl+l"] "Label it";
        TreeCompare "app.tree.compare" ["alt+d"] "Mark a branch; on another one, compare both";
        TreeWider "app.tree.wider" ["ctrl+a"] "The sessions of this directory; then those of all directories and agents";
    }
}
